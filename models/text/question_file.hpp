// Multiple-choice questions (HellaSwag, MMLU) in llm.c's file format:
//
//   256 int32            magic 20240522, version 1, number of examples, bytes of the longest; zeros
//   uint16 per example   65535, its bytes, its number, the right completion, number of completions, tokens of the
//                        context and the tokens, and the same of each completion
//
// All are little-endian, numbers from 0. Any thread.
#pragma once

#include "runtime/files/memory_map.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ranvier::models {

class QuestionFile {
 public:
  /// A completion, with its example's context.
  struct Answer {
    std::size_t example = 0;
    std::span<const std::uint16_t> context;
    std::span<const std::uint16_t> completion;
  };

  /// Reads and checks the complete file. Throws ErrorCode::io if it cannot be read. Throws ErrorCode::data, naming
  /// file and offset, if it is damaged or a token is not below `vocab_size`.
  QuestionFile(std::filesystem::path path, int vocab_size);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::size_t examples() const noexcept { return examples_.size(); }
  /// Number of completions of all examples, grouped by example.
  [[nodiscard]] std::size_t answers() const noexcept { return answers_.size(); }
  [[nodiscard]] const Answer& answer(std::size_t n) const { return answers_[n]; }
  /// Index of an example's first completion.
  [[nodiscard]] std::size_t first_answer(std::size_t example) const { return examples_[example].first; }
  [[nodiscard]] std::size_t answers_of(std::size_t example) const { return examples_[example].answers; }
  /// Index of the right completion within its example, from 0.
  [[nodiscard]] std::size_t right_answer(std::size_t example) const { return examples_[example].right; }

 private:
  struct Example {
    std::size_t first = 0, answers = 0, right = 0;
  };

  std::filesystem::path path_;
  runtime::MemoryMap file_;
  std::vector<Example> examples_;
  std::vector<Answer> answers_;
};

}  // namespace ranvier::models
