// tiktoken's ranks, after the ranks of the 256 bytes, without which every file is refused.
#include "tests/fuzz/tokenizer.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  static const std::string alphabet = [] {
    tests::SmallTokenizer small;
    small.merges.clear();
    return small.tiktoken();
  }();
  fuzz::read_tokenizer(folder.write("a.tiktoken", alphabet + std::string(fuzz::view(data, size))), folder);
  return 0;
}
