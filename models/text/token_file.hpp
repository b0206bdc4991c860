// One file of tokens, mapped into memory:
//
//   text       any bytes; each is a token, so the vocabulary is 256. Compressed text, and JSON lines, are read into
//              memory instead; a new line ends each line's document
//   llmc       llm.c's .bin: 256 int32 of header, then the tokens: magic 20240520 and version 1 for uint16, magic
//              20240801 and version 7 for uint32
//   uint16     tokens without a header (nanoGPT's .bin)
//   megatron   .bin with the tokens, of any integer type, and .idx beside it: the tokens are those of the index's
//              sequences, one after another in its order, wherever they lie in the .bin. As for Megatron, what ends
//              a document is a token like others, which is there if the file was made with it (--append-eod)
//
// All are little-endian. Headers, indices and sizes are checked on opening, tokens by check_vocabulary() and again
// whenever they are read. Any thread.
#pragma once

#include "models/text/data_file.hpp"
#include "runtime/memory_map.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace ranvier::models {

class TokenFile {
 public:
  /// Tokens, or text that is not compressed. Throws ErrorCode::io if the file cannot be read, ErrorCode::data if it is
  /// empty, damaged or of another format.
  explicit TokenFile(const DataFile& file);

  /// Tokens in memory that were made of the text at `path`, at least one, and where documents begin among them.
  TokenFile(std::filesystem::path path, std::vector<std::int32_t> tokens, std::vector<std::int64_t> begins);
  /// Text in memory that was read of the file at `path`, at least one byte.
  TokenFile(std::filesystem::path path, std::vector<char> text, std::vector<std::int64_t> begins);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] TokenFormat format() const noexcept { return format_; }  ///< never automatic
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// That its tokens are known to be of; 0: nothing says.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Whether the file says where documents begin; the first token of another one is all that is known.
  [[nodiscard]] bool knows_documents() const noexcept {
    return format_ == TokenFormat::text || format_ == TokenFormat::megatron;
  }
  /// Where they begin, in order, if the file says so; else at its first token and after each token `end`, of those
  /// below `vocab_size`. Reads Megatron's index again, or all tokens: throws as opening and read() do.
  [[nodiscard]] std::vector<std::int64_t> document_begins(std::int32_t end, int vocab_size) const;
  /// The file and those that were read with it.
  [[nodiscard]] std::vector<std::filesystem::path> paths() const;
  /// Of text that is mapped; otherwise empty.
  [[nodiscard]] std::string_view text() const;

  /// Throws ErrorCode::data, naming file, token and offset, if one of `count` tokens from `first` on is not
  /// below `vocab_size`.
  void check_vocabulary(std::int64_t first, std::int64_t count, int vocab_size) const;

  /// Copies `count` tokens from `first` on, which lie inside the file. Throws as check_vocabulary() does.
  void read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const;

  /// Says that these tokens will be read soon, so that the system may fetch them meanwhile.
  void will_read(std::int64_t first, std::int64_t count) const;

 private:
  enum class Type : std::uint8_t { u8, i8, u16, i16, u32, i32, i64 };
  /// Tokens that lie one after another, up to those of the next run.
  struct Run {
    std::int64_t first = 0;
    std::size_t offset = 0;  // of the bytes
  };

  void open_llmc();
  void open_megatron();
  [[nodiscard]] std::vector<std::int64_t> megatron_begins() const;
  [[nodiscard]] std::filesystem::path index_path() const;
  [[nodiscard]] static std::size_t bytes_of(Type type);
  /// Calls f(token of the type, value-initialised).
  template <typename F>
  static void with_type(Type type, F&& f);
  /// Calls f(offset, first, count) for the parts of the runs that the range covers.
  template <typename F>
  void for_each_part(std::int64_t first, std::int64_t count, F&& f) const;

  std::filesystem::path path_;
  runtime::MemoryMap file_;
  std::vector<std::int32_t> made_;    // of text; the file is not mapped then
  std::vector<char> read_;            // text; likewise
  std::vector<std::int64_t> begins_;  // of documents in text
  TokenFormat format_;
  Type type_ = Type::u8;
  const std::byte* data_ = nullptr;  // of the file, of made_ or of read_
  std::vector<Run> runs_{Run{}};
  std::int64_t tokens_ = 0, documents_ = 0;
};

}  // namespace ranvier::models
