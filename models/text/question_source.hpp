// The answers of a QuestionFile as samples: context and completion, padded. A completion is scored by the losses of its
// tokens, which are those of a part of the sample's positions.
//
// An answer longer than the model's context loses the beginning of its own.
#pragma once

#include "models/sample_source.hpp"
#include "models/text/question_file.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ranvier::models {

class QuestionSource final : public SampleSource {
 public:
  QuestionSource(std::shared_ptr<const QuestionFile> file, int sequence_length);

  [[nodiscard]] const QuestionFile& file() const noexcept { return *file_; }

  /// How many positions samples first … first+count-1 need, rounded up so that few sizes occur.
  [[nodiscard]] int positions_of(std::int64_t first, int count) const;
  /// Samples have so many from now on. Nobody reads meanwhile.
  void set_positions(int positions) { positions_ = positions; }

  /// Positions of a sample whose targets are its completion: [begin, end).
  struct Scored {
    std::size_t begin = 0, end = 0;
  };
  [[nodiscard]] Scored scored(std::int64_t sample) const;

  [[nodiscard]] std::int64_t samples() const override { return static_cast<std::int64_t>(file_->answers()); }
  [[nodiscard]] std::size_t input_bytes() const override {
    return static_cast<std::size_t>(positions_) * sizeof(std::int32_t);
  }
  [[nodiscard]] std::size_t target_bytes() const override { return input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return positions_; }
  void read_inputs(std::int64_t first, int count, std::byte* to) const override { read(first, count, 0, to); }
  void read_targets(std::int64_t first, int count, std::byte* to) const override { read(first, count, 1, to); }

 private:
  [[nodiscard]] const QuestionFile::Answer& answer(std::int64_t sample) const {
    return file_->answer(static_cast<std::size_t>(sample % samples()));
  }
  /// Tokens of an answer that do not fit: one more than the positions does, as the last is a target only.
  [[nodiscard]] std::size_t left_out(const QuestionFile::Answer& answer) const;
  void read(std::int64_t first, int count, std::size_t shift, std::byte* to) const;

  std::shared_ptr<const QuestionFile> file_;
  int length_;
  int positions_;
};

}  // namespace ranvier::models
