// Megatron's .idx file, with a .bin file of 256 bytes.
#include "tests/fuzz/input.hpp"
#include "tests/fuzz/samples.hpp"

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  static const auto path = [] {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i % 8 == 0 ? i : 0);
    return folder.write("a.bin", bytes);
  }();
  folder.write("a.idx", fuzz::view(data, size));
  fuzz::accepts_or_refuses(folder.path().string() + "/a.", [] {
    fuzz::read_samples({.path = path,
                        .reading = {.format = models::TokenFormat::megatron},
                        .sequence_length = 3,
                        .vocab_size = 256});
  });
  return 0;
}
