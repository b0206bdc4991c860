// Samples for text classification, from JSON lines with a text and a label. A sample is a start token, the text's
// tokens (truncated to T), an end token and padding, as transformers' tokenizers make them. Its target is the class
// number.
//
// Labels are class names or class numbers.
#pragma once

#include "models/text/document_source.hpp"
#include "models/text/subset_source.hpp"
#include "models/text/tokenized_lines.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Name of an unnamed class, as in transformers: "LABEL_2".
[[nodiscard]] std::string unnamed_label(int label);

/// Class names of the labels in these files, by number: in alphabetical order, or unnamed classes up to the largest
/// if all labels are integers. Throws like LabelledTexts, and ErrorCode::data for more than `most` labels.
[[nodiscard]] std::vector<std::string> labels_in(const std::filesystem::path& path, const TextReading& reading,
                                                 std::size_t most);

/// Number of the class with this name or number; none if there is no such class.
[[nodiscard]] std::optional<std::int32_t> class_of(std::string_view label, std::span<const std::string> labels);

struct LabelledTextOptions {
  int sequence_length = 1;  ///< T
  int vocab_size = 256;
  TokensAround around;
  std::vector<std::string> labels;  ///< class names
};

/// Labelled texts in memory. Any thread.
class LabelledTexts : public TokenizedLines {
 public:
  /// Skips lines without text. Throws like read_lines(), ErrorCode::usage if T has no position for a token, and
  /// ErrorCode::data for an unknown label, or no text.
  LabelledTexts(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text,
                LabelledTextOptions options);

  [[nodiscard]] std::int64_t samples() const noexcept { return std::ssize(texts_); }
  [[nodiscard]] int sequence_length() const noexcept { return options_.sequence_length; }
  [[nodiscard]] std::int32_t label(std::int64_t sample) const { return text(sample).label; }
  [[nodiscard]] static std::int64_t losses(std::int64_t) { return 1; }
  /// Positions that are not padding.
  [[nodiscard]] std::int32_t filled(std::int64_t sample) const {
    return text(sample).tokens + options_.around.count();
  }
  /// Writes int32 [T].
  void read(std::int64_t sample, std::int32_t* to) const;

 private:
  struct Text {
    std::int64_t first = 0;  ///< token
    std::int32_t tokens = 0, label = 0;
  };

  [[nodiscard]] const Text& text(std::int64_t sample) const { return texts_[static_cast<std::size_t>(sample)]; }
  /// Adds a text with this label.
  void add(std::span<const std::int32_t> tokens, std::string_view label);
  void report();

  LabelledTextOptions options_;
  std::int32_t capacity_;  // tokens of a text per sample
  std::vector<Text> texts_;
  std::int64_t cut_ = 0;
};

class LabelledSource final : public SubsetSource<LabelledTexts> {
 public:
  using SubsetSource::SubsetSource;

  [[nodiscard]] std::size_t target_bytes() const override { return sizeof(std::int32_t); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return 1; }
  void read_target(std::int64_t n, std::byte* to) const override {
    *reinterpret_cast<std::int32_t*>(to) = set().label(index(n));
  }
};

}  // namespace ranvier::models
