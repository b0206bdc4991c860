// One file of tokens, mapped into memory:
//
//   text     any bytes; each is a token, so the vocabulary is 256
//   llmc     llm.c's .bin: 256 int32 of header (magic 20240520, version 1, count, zeros), then uint16 tokens
//   uint16   tokens without a header (nanoGPT's .bin)
//
// All are little-endian. Header and size are checked on opening, tokens by check_vocabulary() and again
// whenever they are read. Any thread.
#pragma once

#include "runtime/memory_map.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace ranvier::models {

enum class TokenFormat { automatic, text, llmc, uint16 };

class TokenFile {
 public:
  /// `automatic` takes a file with llm.c's magic for that and any other for text, except that a .bin must say
  /// what it is. Throws ErrorCode::io if the file cannot be read, ErrorCode::data if it is empty, damaged or
  /// of another format.
  TokenFile(std::filesystem::path path, TokenFormat format);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] TokenFormat format() const noexcept { return format_; }  ///< never automatic
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }

  /// Throws ErrorCode::data, naming file, token and offset, if one of `count` tokens from `first` on is not
  /// below `vocab_size`.
  void check_vocabulary(std::int64_t first, std::int64_t count, int vocab_size) const;

  /// Copies `count` tokens from `first` on. The range lies inside the file.
  void read(std::int64_t first, std::int64_t count, std::int32_t* to) const;

 private:
  std::filesystem::path path_;
  runtime::MemoryMap file_;
  TokenFormat format_;
  const std::byte* data_ = nullptr;
  std::int64_t tokens_ = 0;
  std::size_t token_bytes_ = 1;
};

}  // namespace ranvier::models
