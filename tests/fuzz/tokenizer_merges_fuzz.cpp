// OpenAI's encoder.json, and after a zero byte its vocab.bpe.
#include "tests/fuzz/tokenizer.hpp"

#include <algorithm>

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  const std::string_view input = fuzz::view(data, size);
  const std::size_t names = std::min(input.find('\0'), size);
  folder.write("encoder.json", input.substr(0, names));
  folder.write("vocab.bpe", input.substr(std::min(names + 1, size)));
  fuzz::read_tokenizer(folder.path(), folder);
  return 0;
}
