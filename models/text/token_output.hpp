// Tokens on their way to a file, so that nobody ever takes half a file for a whole one and an interrupted run need
// not begin anew.
//
//   llmc       NAME.bin: llm.c's header (256 int32: magic 20240520, version 1, count, zeros), then uint16
//   megatron   NAME.bin with the tokens alone, uint16 or int32 as Megatron chooses, and NAME.idx with the documents
//
// Until commit() all of it lies in files of other names beside them (*.partial), where llm.c's header is zeros, and
// what was at NAME stays. checkpoint() makes durable what was appended and notes it in NAME.bin.progress; a later
// output of the same name and job goes on from there, and one of another job begins anew. One thread at a time, and
// one process: a second is refused.
#pragma once

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
  std::uint64_t job = 0;  ///< of what the tokens are made, and how
};

/// NAME.bin of the NAME in TokenOutputOptions.
[[nodiscard]] std::filesystem::path token_file_path(const std::filesystem::path& name);

class TokenOutput {
 public:
  /// How much of the text has become tokens.
  struct Position {
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };

  /// Throws ErrorCode::usage if the format has no room for the vocabulary, ErrorCode::io if the files cannot be
  /// made.
  explicit TokenOutput(const TokenOutputOptions& options);
  /// Keeps what checkpoint() noted.
  ~TokenOutput();
  TokenOutput(const TokenOutput&) = delete;
  TokenOutput& operator=(const TokenOutput&) = delete;

  /// Where the text goes on: the start, unless an earlier run was interrupted.
  [[nodiscard]] Position start() const noexcept { return start_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// That were ended.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Of the document that was not ended yet.
  [[nodiscard]] std::int64_t document_tokens() const noexcept { return document_tokens_; }

  /// Throw ErrorCode::io if the system does not take it, ErrorCode::data if it is more than the format can count.
  void append(std::span<const std::int32_t> tokens);
  void end_document();
  /// All text before `position` was appended.
  void checkpoint(Position position);
  void commit();

 private:
  void write(int file, const void* data, std::size_t bytes, const std::filesystem::path& name) const;
  void go_on_or_begin();
  void write_index() const;

  TokenOutputOptions options_;
  std::filesystem::path tokens_path_, tokens_partial_;
  std::filesystem::path index_path_, index_partial_;
  std::filesystem::path sizes_partial_;  // of documents, int32
  std::filesystem::path progress_path_;
  std::size_t token_bytes_ = 2;
  int tokens_file_ = -1, sizes_file_ = -1;
  Position start_;
  std::int64_t tokens_ = 0, documents_ = 0, document_tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace ranvier::models
