// The bytes of a file from front to back, with what compresses them undone, in memory that does not grow with the file.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace ranvier::models {

enum class Compression { none, gzip, zstd };

/// How a file that begins like this is compressed.
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
  /// Of them, those that were read so far.
  [[nodiscard]] std::uint64_t file_position() const noexcept { return read_ - waiting_.size(); }

  /// The next bytes of the content, fewer than `bytes` only at its end. Throws ErrorCode::io if the system refuses,
  /// ErrorCode::data if what is compressed is damaged or ends too early; messages name the file and its offset.
  std::size_t read(char* to, std::size_t bytes);
  /// Leaves out bytes of the content. Throws likewise.
  void skip(std::uint64_t bytes);

 private:
  class Decoder;
  class GzipDecoder;
  class ZstdDecoder;

  /// Whether waiting_ has bytes; false: the file ended.
  bool fill();
  std::size_t read_file(char* to, std::size_t bytes);
  [[noreturn]] void refuse(std::string_view what) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t file_bytes_ = 0, read_ = 0;
  Compression compression_ = Compression::none;
  std::vector<char> buffer_;
  std::string_view waiting_;  // of buffer_: read and not taken yet
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace ranvier::models
