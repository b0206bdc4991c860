// Samples of one document each: start token, the document's tokens, end token, padding up to T. A longer document
// becomes several samples, each with both tokens. This equals transformers' tokenizers with special tokens,
// truncation and padding to T, and overflow as extra samples.
#pragma once

#include "models/text/subset_source.hpp"
#include "models/text/token_sequence.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Tokens of a sample besides the document's.
struct TokensAround {
  std::optional<std::int32_t> begin;  ///< [CLS] or <s>; none: a sample begins with the document
  std::optional<std::int32_t> end;    ///< [SEP] or </s>; none: it ends with the document
  std::int32_t padding = 0;

  /// Number of these tokens.
  [[nodiscard]] std::int32_t count() const noexcept { return (begin ? 1 : 0) + (end ? 1 : 0); }
  /// Positions for the document in a sample of T positions. Throws ErrorCode::usage if there is none.
  [[nodiscard]] std::int32_t capacity(int sequence_length) const;
};

struct DocumentSampleOptions {
  int sequence_length = 1;  ///< T
  int vocab_size = 256;
  TokensAround around;
  std::optional<std::int32_t> document_end;  ///< end token of documents in the data, which samples do not contain
};

/// Documents cut into samples. Any thread.
class CutDocuments {
 public:
  /// Call after TokenSequence::find_documents(). Documents may already start with around.begin. Reads both ends of
  /// each document and keeps 16 bytes per sample. Throws ErrorCode::data if all documents are empty, ErrorCode::usage
  /// if T has no position for their tokens.
  CutDocuments(std::shared_ptr<const TokenSequence> tokens, const DocumentSampleOptions& options);

  [[nodiscard]] std::int64_t samples() const noexcept { return std::ssize(pieces_); }
  /// Positions that are not padding.
  [[nodiscard]] std::int64_t filled(std::int64_t sample) const {
    return pieces_[static_cast<std::size_t>(sample)].tokens + options_.around.count();
  }
  [[nodiscard]] std::int64_t losses(std::int64_t sample) const { return filled(sample); }
  [[nodiscard]] int sequence_length() const noexcept { return options_.sequence_length; }
  /// Writes int32 [T]. Throws ErrorCode::data if a token is outside the vocabulary.
  void read(std::int64_t sample, std::int32_t* to) const;
  void will_read(std::int64_t sample) const;
  /// Remark for the user: fraction of padding, number of cut documents.
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

/// Documents as samples. Targets equal the inputs, no_target for padding: the targets of masked language modelling
/// (masked_source.hpp) if all tokens were masked.
class DocumentSource final : public SubsetSource<CutDocuments> {
 public:
  using SubsetSource::SubsetSource;

  void read_target(std::int64_t n, std::byte* to) const override;
  void prefetch(std::int64_t n) const override { set().will_read(index(n)); }
};

}  // namespace ranvier::models
