// Samples of one document each: a token that begins it, its tokens, a token that ends it, and padding up to T; of a
// document that is longer, so many samples as it takes, each with the two tokens. So transformers' tokenizers make
// samples of texts with their special tokens, truncated to T, what overflows as samples of its own, and padded to T.
//
// Positions of padding see nobody and are seen by nobody: each is a document of its own.
#pragma once

#include "models/sample_source.hpp"
#include "models/text/sample_order.hpp"
#include "models/text/token_sequence.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Tokens of a sample beside those of its document.
struct TokensAround {
  std::optional<std::int32_t> begin;  ///< [CLS] or <s>; none: a sample begins with the document
  std::optional<std::int32_t> end;    ///< [SEP] or </s>; none: it ends with the document
  std::int32_t padding = 0;

  /// How many there are without padding.
  [[nodiscard]] std::int32_t count() const noexcept { return (begin ? 1 : 0) + (end ? 1 : 0); }
};

struct DocumentSampleOptions {
  int sequence_length = 1;  ///< T
  int vocab_size = 256;
  TokensAround around;
  std::optional<std::int32_t> document_end;  ///< what documents end with in the data, which does not come along
};

/// Documents in pieces of a sample each. Any thread.
class CutDocuments {
 public:
  /// After TokenSequence::find_documents(). Documents may begin with around.begin already. Reads both ends of each, and
  /// keeps 16 bytes for each piece. Throws ErrorCode::data where no document has a token, ErrorCode::usage where T has
  /// no room for one.
  CutDocuments(std::shared_ptr<const TokenSequence> tokens, const DocumentSampleOptions& options);

  [[nodiscard]] std::int64_t samples() const noexcept { return std::ssize(pieces_); }
  /// Positions that are no padding.
  [[nodiscard]] std::int64_t filled(std::int64_t sample) const {
    return pieces_[static_cast<std::size_t>(sample)].tokens + options_.around.count();
  }
  [[nodiscard]] int sequence_length() const noexcept { return options_.sequence_length; }
  /// Writes int32 [T]. Throws ErrorCode::data if a token is outside the vocabulary.
  void read(std::int64_t sample, std::int32_t* to) const;
  void will_read(std::int64_t sample) const;
  /// How much is padding, and how many documents were cut, for people.
  [[nodiscard]] const std::string& remark() const noexcept { return remark_; }

 private:
  struct Excerpt {
    std::int64_t first = 0;  ///< token of the sequence
    std::int32_t tokens = 0;
  };

  std::shared_ptr<const TokenSequence> tokens_;
  DocumentSampleOptions options_;
  std::vector<Excerpt> pieces_;
  std::string remark_;
};

/// Targets are the inputs, no_target in place of padding: what a model that fills masks would have to find
/// (masked_source.hpp) if all tokens were masked.
class DocumentSource final : public SampleSource {
 public:
  /// Of samples [begin, end), without a seed in their order.
  DocumentSource(std::shared_ptr<const CutDocuments> documents, std::int64_t begin, std::int64_t end,
                 std::optional<std::uint64_t> shuffle_seed);

  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] std::size_t input_bytes() const override { return document_positions() * sizeof(std::int32_t); }
  [[nodiscard]] std::size_t target_bytes() const override { return input_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return documents_->sequence_length(); }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override {
    return static_cast<std::size_t>(documents_->sequence_length());
  }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override {
    return documents_->sequence_length() - documents_->filled(piece(n));
  }
  void read_inputs(std::int64_t first, int count, std::byte* to) const override;
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override;
  void will_read(std::int64_t first, int count) const override;

 private:
  [[nodiscard]] std::int64_t piece(std::int64_t n) const { return begin_ + (order_ ? (*order_)(n) : n % samples_); }

  std::shared_ptr<const CutDocuments> documents_;
  std::int64_t begin_, samples_;
  std::optional<SampleOrder> order_;
};

}  // namespace ranvier::models
