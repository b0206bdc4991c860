// Writes tokens to a file atomically; an interrupted run resumes where it stopped:
//
//   llmc       NAME.bin: llm.c's header (256 int32: magic 20240520, version 1, count, zeros), then uint16
//   megatron   NAME.bin with uint16 or int32 tokens as Megatron chooses, and NAME.idx with the documents
//
// Until commit(), data is in *.partial files and NAME stays unchanged. checkpoint() syncs the data and records it in
// NAME.bin.progress, for a later run with the same inputs and options. One thread; a second process is refused.
#pragma once

#include "runtime/files/file_descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ranvier::models {

enum class TokenOutputFormat { llmc, megatron };

struct TokenOutputOptions {
  std::filesystem::path path;  ///< NAME, with or without its extension
  TokenOutputFormat format = TokenOutputFormat::llmc;
  std::int32_t vocab_size = 1;
  std::uint64_t job = 0;  ///< hash of the inputs and options; a run resumes only if it is equal
};

/// NAME.bin of the NAME in TokenOutputOptions.
[[nodiscard]] std::filesystem::path token_file_path(const std::filesystem::path& name);

class TokenOutput {
 public:
  /// Position in the text up to which it is tokenized.
  struct Position {
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };

  /// Throws ErrorCode::usage if the vocabulary does not fit the format, ErrorCode::io if the files cannot be created.
  explicit TokenOutput(const TokenOutputOptions& options);

  /// Position at which to resume: the start, unless an earlier run was interrupted.
  [[nodiscard]] Position start() const noexcept { return start_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// Number of completed documents.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Tokens of the current document.
  [[nodiscard]] std::int64_t document_tokens() const noexcept { return document_tokens_; }

  /// Throw ErrorCode::io if writing fails, ErrorCode::data if the format's counters overflow.
  void append(std::span<const std::int32_t> tokens);
  void end_document();
  /// All text before `position` must have been appended.
  void checkpoint(Position position);
  void commit();

 private:
  void write(const runtime::FileDescriptor& file, const void* data, std::size_t bytes,
             const std::filesystem::path& name) const;
  void go_on_or_begin();
  void write_index() const;

  TokenOutputOptions options_;
  std::filesystem::path tokens_path_, tokens_partial_;
  std::filesystem::path index_path_, index_partial_;
  std::filesystem::path sizes_partial_;  // sizes of documents, int32
  std::filesystem::path progress_path_;
  std::size_t token_bytes_ = 2;
  runtime::FileDescriptor tokens_file_, sizes_file_;  // sizes: only for megatron
  Position start_;
  std::int64_t tokens_ = 0, documents_ = 0, document_tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace ranvier::models
