// Documents of JSON lines as tokens in memory: base of PackedInstructions and LabelledTexts. Any thread.
#pragma once

#include "models/text/document_reader.hpp"
#include "models/text/token_sequence.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

class TokenizedLines {
 public:
  [[nodiscard]] std::int64_t tokens() const noexcept { return std::ssize(tokens_); }
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<SkippedFile>& left_out() const noexcept { return left_out_; }
  [[nodiscard]] const std::vector<std::string>& remarks() const noexcept { return remarks_; }

 protected:
  /// Appends a document to tokens_. The first `prompt` tokens are its prompt fields.
  using Add = std::function<void(const DocumentReader::Text& document, std::span<const std::int32_t> tokens,
                                 std::size_t prompt)>;

  explicit TokenizedLines(std::filesystem::path path) : path_(std::move(path)) {}
  /// Encodes the documents of json_lines_at(), in order; without a tokenizer, each byte is a token. Throws like
  /// json_lines_at() and DocumentReader, and ErrorCode::data for too much text for memory or a token outside the
  /// vocabulary.
  void read_lines(const TextReading& reading, const TextTokens& text, int vocab_size, const Add& add);

  std::filesystem::path path_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::int32_t> tokens_;
  std::vector<SkippedFile> left_out_;
  std::vector<std::string> remarks_;
};

}  // namespace ranvier::models
