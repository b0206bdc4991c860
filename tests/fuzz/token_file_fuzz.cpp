// A token file of every format except Megatron's. The first byte chooses format and name, the second the model's sizes.
#include "tests/fuzz/input.hpp"
#include "tests/fuzz/samples.hpp"

using namespace ranvier;
using models::TokenFormat;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  static constexpr TokenFormat formats[] = {TokenFormat::automatic, TokenFormat::text, TokenFormat::llmc,
                                            TokenFormat::uint16, TokenFormat::jsonl};
  std::string_view input = fuzz::view(data, size);
  const unsigned choice = fuzz::take_byte(input);
  const unsigned sizes = fuzz::take_byte(input);
  static constexpr const char* names[] = {"a.txt", "a.bin", "a.jsonl", "a.json"};
  const auto path = folder.write(names[choice % 4], input);
  std::vector<models::WeightedPath> mixture;
  if (choice & 16) mixture = {{path.string(), 3}, {path.string(), 0.5}};
  fuzz::accepts_or_refuses(path.string(), [&] {
    fuzz::read_samples({.path = path,
                        .mixture = mixture,
                        .reading = {.format = formats[choice / 32 % 5]},
                        .sequence_length = static_cast<int>(1 + sizes % 8),
                        .vocab_size = static_cast<int>(1 + sizes * 300),
                        .shuffle_seed = 1,
                        .validation_split = choice & 8 ? 0.25 : 0.0});
  });
  return 0;
}
