// A file of tokens, mapped into memory:
//
//   text       any bytes, each a token (vocabulary 256); compressed text and JSON lines are read into memory
//   llmc       llm.c's .bin: header of 256 int32 (magic 20240520: uint16 tokens; 20240801: uint32), then tokens
//   uint16     tokens without a header (nanoGPT's .bin)
//   megatron   .bin with tokens, .idx with sequences; end-of-document tokens only with `append_eod`
//
// Little-endian. Opening checks headers, indices and sizes; check_vocabulary() and read() check tokens. Any thread.
#pragma once

#include "models/text/data_file.hpp"
#include "runtime/files/memory_map.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <variant>
#include <vector>

namespace ranvier::models {

class TokenFile {
 public:
  /// Opens tokens or uncompressed text. Throws ErrorCode::io if the file cannot be read, ErrorCode::data if it is
  /// empty, damaged or has another format.
  explicit TokenFile(const DataFile& file);

  using TokensOrText = std::variant<std::vector<std::int32_t>, std::vector<char>>;
  /// Takes tokens of the text at `path`, or the text itself (at least one or one byte), and the starts of its
  /// documents.
  TokenFile(std::filesystem::path path, TokensOrText held, std::vector<std::int64_t> begins);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] TokenFormat format() const noexcept { return format_; }  ///< never automatic
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// Number of documents; 0: unknown.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Whether the file itself contains the starts of documents.
  [[nodiscard]] bool knows_documents() const noexcept {
    return format_ == TokenFormat::text || format_ == TokenFormat::megatron;
  }
  /// Starts of the documents, in order: from the file if known, otherwise its first token and the tokens after each
  /// `end`. Reads Megatron's index again or all tokens. Throws like the constructor and read().
  [[nodiscard]] std::vector<std::int64_t> document_begins(std::int32_t end, int vocab_size) const;
  /// The file and its companions.
  [[nodiscard]] std::vector<std::filesystem::path> paths() const;
  /// Text of a mapped text file; otherwise empty.
  [[nodiscard]] std::string_view text() const {
    return format_ == TokenFormat::text ? file_.text() : std::string_view();
  }

  /// Checks `count` tokens starting at `first`. Throws ErrorCode::data, naming file, token and offset, if one is not
  /// below `vocab_size`.
  void check_vocabulary(std::int64_t first, std::int64_t count, int vocab_size) const;

  /// Copies `count` tokens starting at `first`; the range must be inside the file. Throws like check_vocabulary().
  void read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const;

  /// Advises the system to prefetch these tokens.
  void will_read(std::int64_t first, std::int64_t count) const;

 private:
  enum class Type : std::uint8_t { u8, i8, u16, i16, u32, i32, i64 };
  /// Contiguous tokens, up to the start of the next run.
  struct Run {
    std::int64_t first = 0;
    std::size_t offset = 0;  // byte offset in the data
  };

  void open_llmc();
  void open_megatron();
  [[nodiscard]] std::vector<std::int64_t> megatron_begins() const;
  [[nodiscard]] std::filesystem::path index_path() const;
  [[nodiscard]] static std::size_t bytes_of(Type type);
  /// Calls f with a value of the token type.
  template <typename F>
  static void with_type(Type type, F&& f);
  /// Calls f(offset, count) for the parts of the runs that the range covers.
  template <typename F>
  void for_each_part(std::int64_t first, std::int64_t count, F&& f) const;

  std::filesystem::path path_;
  runtime::MemoryMap file_;
  TokensOrText held_;                 // if not empty, the file is not mapped
  std::vector<std::int64_t> begins_;  // starts of documents in text
  TokenFormat format_;
  Type type_ = Type::u8;
  const std::byte* data_ = nullptr;  // data of the file or held_
  std::vector<Run> runs_{Run{}};
  std::int64_t tokens_ = 0, documents_ = 0;
};

}  // namespace ranvier::models
