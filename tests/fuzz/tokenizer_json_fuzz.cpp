// Hugging Face's tokenizer.json.
#include "tests/fuzz/tokenizer.hpp"

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  fuzz::read_tokenizer(folder.write("tokenizer.json", fuzz::view(data, size)), folder, true);
  return 0;
}
