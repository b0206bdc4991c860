// Samples for instruction tuning, from JSON lines with a prompt and a completion. A document is prompt, completion
// and end (the end-of-text token; for bytes a new line). Both are encoded separately, as in generation. The prompt
// starts with the tokenizer's template. Only completion and end have losses.
//
// A sample packs as many complete documents, in file order, as fit T positions. Positions attend only to their own
// document and count from zero in each. The rest is padding without loss. Longer documents are truncated to T + 1
// tokens, and skipped if no completion is left.
#pragma once

#include "models/text/subset_source.hpp"
#include "models/text/tokenized_lines.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ranvier::models {

/// The documents in memory, packed into samples. Any thread.
class PackedInstructions : public TokenizedLines {
 public:
  /// Throws like read_lines(), and ErrorCode::data for no completion.
  PackedInstructions(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text,
                     int sequence_length, int vocab_size);

  struct Document {
    std::int64_t first = 0;   ///< token
    std::int32_t tokens = 0;  ///< number of tokens, one more than positions
    std::int32_t prompt = 0;  ///< number of prompt tokens
  };
  [[nodiscard]] std::int64_t samples() const noexcept { return std::ssize(losses_); }
  [[nodiscard]] std::int64_t losses(std::int64_t sample) const { return losses_[static_cast<std::size_t>(sample)]; }
  /// Positions that are not padding.
  [[nodiscard]] std::int32_t filled(std::int64_t sample) const;
  /// Writes int32 [T].
  void read(std::int64_t sample, std::int32_t* to) const;
  /// Calls f(document, address of its first position) for the documents of a sample that starts at `to`, in order.
  /// Returns the start of the padding.
  template <typename F>
  std::int32_t* for_each_document(std::int64_t sample, std::int32_t* to, F&& f) const {
    for (const Document& document : documents_of(sample)) {
      f(document, to);
      to += document.tokens - 1;
    }
    return to;
  }
  [[nodiscard]] const std::int32_t* tokens_of(const Document& document) const {
    return tokens_.data() + document.first;
  }

  [[nodiscard]] int sequence_length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t documents() const noexcept { return std::ssize(documents_); }

 private:
  [[nodiscard]] std::span<const Document> documents_of(std::int64_t sample) const;
  /// Adds the last `tokens` tokens as a document, of which the first `prompt` are the prompt.
  void add(std::int64_t prompt, std::int64_t tokens);
  void pack();

  int length_;
  std::vector<Document> documents_;
  std::vector<std::int64_t> firsts_;  // first document of each sample, and the end of the last
  std::vector<std::int32_t> losses_;  // positions with a loss per sample
  std::int64_t cut_ = 0, lost_ = 0;
};

class InstructionSource final : public SubsetSource<PackedInstructions> {
 public:
  using SubsetSource::SubsetSource;

  void read_target(std::int64_t n, std::byte* to) const override;
  void read_starts(std::int64_t n, std::int32_t* to) const override;
};

}  // namespace ranvier::models
