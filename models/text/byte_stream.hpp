// Reads a file sequentially and decompresses it, with constant memory. One thread at a time.
#pragma once

#include "runtime/files/file_descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace ranvier::models {

enum class Compression { none, gzip, zstd };

/// Compression of a file that starts with these bytes.
[[nodiscard]] Compression compression_of(std::string_view beginning);

class ByteStream {
 public:
  /// Throws ErrorCode::io if `path` is not a regular file that can be read.
  explicit ByteStream(std::filesystem::path path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  [[nodiscard]] Compression compression() const noexcept { return compression_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  /// Bytes of the file that were read so far, before decompression.
  [[nodiscard]] std::uint64_t file_position() const noexcept { return read_ - waiting_.size(); }

  /// Reads the next bytes of the content, fewer than `bytes` only at its end. Throws ErrorCode::io if the system
  /// refuses, ErrorCode::data if the compressed data is damaged or truncated. Messages name file and offset.
  std::size_t read(char* to, std::size_t bytes);
  /// Skips bytes of the content. Throws like read().
  void skip(std::uint64_t bytes);

 private:
  class Decoder;
  class GzipDecoder;
  class ZstdDecoder;

  /// Fills waiting_. False: end of file.
  bool fill();
  std::size_t read_file(char* to, std::size_t bytes);
  [[noreturn]] void refuse(std::string_view what) const;

  std::filesystem::path path_;
  runtime::FileDescriptor file_;
  std::uint64_t file_bytes_ = 0, read_ = 0;
  Compression compression_ = Compression::none;
  std::vector<char> buffer_;
  std::string_view waiting_;  // bytes of buffer_ that were read, but not consumed
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace ranvier::models
