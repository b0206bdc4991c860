// A file of multiple-choice questions, read as samples. The first byte chooses the model's sizes.
#include "models/text/question_source.hpp"
#include "tests/fuzz/input.hpp"

#include <algorithm>
#include <memory>
#include <vector>

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  std::string_view input = fuzz::view(data, size);
  const unsigned sizes = fuzz::take_byte(input);
  const int vocab_size = static_cast<int>(1 + 4096 * (sizes >> 4)), length = static_cast<int>(1 + sizes % 16);
  const auto path = folder.write("answers.bin", input);
  fuzz::accepts_or_refuses(path.string(), [&] {
    const auto file = std::make_shared<const models::QuestionFile>(path, vocab_size);
    models::QuestionSource source(file, length);
    for (std::int64_t n = 0; n < source.samples(); ++n) {
      const auto [begin, end] = source.scored(n);
      const int positions = source.positions_of(n, 1);
      fuzz::require(begin < end && end <= static_cast<std::size_t>(positions) && positions <= length,
                    "an answer is scored inside its sample");
      source.set_positions(positions);
      std::vector<std::int32_t> tokens(2 * static_cast<std::size_t>(positions));
      source.read_input(n, reinterpret_cast<std::byte*>(tokens.data()));
      source.read_target(n, reinterpret_cast<std::byte*>(tokens.data() + positions));
      fuzz::require(
          std::all_of(tokens.begin(), tokens.end(), [&](int token) { return token >= 0 && token < vocab_size; }),
          "tokens are in the model's vocabulary");
    }
    for (std::size_t e = 0; e < file->examples(); ++e)
      fuzz::require(file->right_answer(e) < file->answers_of(e), "one of the answers is right");
  });
  return 0;
}
