// Completions of a QuestionFile as samples: context and completion, padded. A completion is scored by the losses of
// its own tokens.
//
// If a completion is longer than the model's context, its first tokens are cut.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/text/question_file.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ranvier::models {

class QuestionSource final : public TokenSamples {
 public:
  QuestionSource(std::shared_ptr<const QuestionFile> file, int sequence_length);

  [[nodiscard]] const QuestionFile& file() const noexcept { return *file_; }

  /// Positions that samples first … first+count-1 need, rounded up so that few sizes occur.
  [[nodiscard]] int positions_of(std::int64_t first, int count) const;
  /// Sets the positions per sample. No other thread may read at the same time.
  using TokenSamples::set_positions;

  /// Positions whose targets are the completion: [begin, end).
  struct Scored {
    std::size_t begin = 0, end = 0;
  };
  [[nodiscard]] Scored scored(std::int64_t sample) const;

  [[nodiscard]] std::int64_t samples() const override { return static_cast<std::int64_t>(file_->answers()); }
  void read_input(std::int64_t n, std::byte* to) const override { read(n, 0, to); }
  void read_target(std::int64_t n, std::byte* to) const override { read(n, 1, to); }

 private:
  [[nodiscard]] const QuestionFile::Answer& answer(std::int64_t sample) const {
    return file_->answer(static_cast<std::size_t>(sample % samples()));
  }
  /// Tokens of a completion that do not fit: one more than positions, because the last token is only a target.
  [[nodiscard]] std::size_t left_out(const QuestionFile::Answer& answer) const;
  void read(std::int64_t n, std::size_t shift, std::byte* to) const;

  std::shared_ptr<const QuestionFile> file_;
  int length_;
};

}  // namespace ranvier::models
