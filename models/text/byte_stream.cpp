#include "models/text/byte_stream.hpp"

#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ranvier::models {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;
constexpr std::string_view gzip_magic = "\x1f\x8b"sv, zstd_magic = "\x28\xb5\x2f\xfd"sv;

}  // namespace

Compression compression_of(std::string_view beginning) {
  if (beginning.starts_with(gzip_magic)) return Compression::gzip;
  if (beginning.starts_with(zstd_magic)) return Compression::zstd;
  return Compression::none;
}

class ByteStream::Decoder {
 public:
  virtual ~Decoder() = default;
  /// Reads from `from` and writes to `to`; advances both. Returns false if neither was possible.
  virtual bool step(ByteStream& stream, std::string_view& from, char*& to, std::size_t& room) = 0;
  /// Whether the input so far is complete.
  [[nodiscard]] bool whole() const { return !inside_; }

 protected:
  bool inside_ = false;  // in the middle of a member or frame
};

/// Consecutive gzip members, and zero padding that some programs add.
class ByteStream::GzipDecoder final : public Decoder {
 public:
  explicit GzipDecoder(const ByteStream& stream) {
    if (inflateInit2(&state_, 16 + MAX_WBITS) != Z_OK) stream.refuse("zlib is out of memory");
  }
  ~GzipDecoder() override { inflateEnd(&state_); }

  bool step(ByteStream& stream, std::string_view& from, char*& to, std::size_t& room) override {
    if (!inside_ && !from.empty()) {
      if (from.front() == '\0') {
        from.remove_prefix(std::min(from.find_first_not_of('\0'), from.size()));
        return true;
      }
      if (from.front() != gzip_magic.front()) stream.refuse("bytes after the gzip data are not gzip");
      inflateReset(&state_);
      inside_ = true;
    }
    if (!inside_) return false;
    const auto least = [](std::size_t bytes) { return static_cast<uInt>(std::min<std::size_t>(bytes, 1u << 30)); };
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    state_.avail_in = least(from.size());
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = least(room);
    const uInt in = state_.avail_in, out = state_.avail_out;
    const int answer = inflate(&state_, Z_NO_FLUSH);
    if (answer == Z_STREAM_END) inside_ = false;
    if (answer != Z_OK && answer != Z_STREAM_END && answer != Z_BUF_ERROR)
      stream.refuse(state_.msg != nullptr ? state_.msg : zError(answer));
    from.remove_prefix(in - state_.avail_in);
    to += out - state_.avail_out;
    room -= out - state_.avail_out;
    return answer == Z_STREAM_END || in != state_.avail_in || out != state_.avail_out;
  }

 private:
  z_stream state_{};
};

class ByteStream::ZstdDecoder final : public Decoder {
 public:
  explicit ZstdDecoder(const ByteStream& stream) : state_(ZSTD_createDCtx()) {
    if (state_ == nullptr) stream.refuse("zstd is out of memory");
  }
  ~ZstdDecoder() override { ZSTD_freeDCtx(state_); }
  ZstdDecoder(const ZstdDecoder&) = delete;
  ZstdDecoder& operator=(const ZstdDecoder&) = delete;

  bool step(ByteStream& stream, std::string_view& from, char*& to, std::size_t& room) override {
    if (!inside_ && from.empty()) return false;
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    ZSTD_outBuffer out{to, room, 0};
    const std::size_t answer = ZSTD_decompressStream(state_, &out, &in);
    if (ZSTD_isError(answer) != 0) stream.refuse(ZSTD_getErrorName(answer));
    inside_ = answer != 0;
    from.remove_prefix(in.pos);
    to += out.pos;
    room -= out.pos;
    return in.pos > 0 || out.pos > 0;
  }

 private:
  ZSTD_DCtx* state_;
};

ByteStream::ByteStream(std::filesystem::path path) : path_(std::move(path)), buffer_(buffer_bytes) {
  struct stat status{};
  file_ = runtime::FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  // A pipe must not block here.
  if (!file_ || ::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    fail(ErrorCode::io, "{}: cannot open: {}", path_.string(), file_ ? "not a regular file" : std::strerror(errno));
  file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  fill();
  compression_ = compression_of(waiting_);
  if (compression_ == Compression::gzip) decoder_ = std::make_unique<GzipDecoder>(*this);
  if (compression_ == Compression::zstd) decoder_ = std::make_unique<ZstdDecoder>(*this);
}

ByteStream::~ByteStream() = default;

std::size_t ByteStream::read_file(char* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes && read_ < file_bytes_) {
    const std::size_t wanted = std::min<std::uint64_t>(bytes - done, file_bytes_ - read_);
    const ssize_t count = ::pread(file_.get(), to + done, wanted, static_cast<off_t>(read_));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      fail(ErrorCode::io, "{}: cannot read at offset {}: {}", path_.string(), read_,
           count < 0 ? std::strerror(errno) : "the file was truncated while open");
    done += static_cast<std::size_t>(count);
    read_ += static_cast<std::uint64_t>(count);
  }
  return done;
}

bool ByteStream::fill() {
  if (waiting_.empty()) waiting_ = {buffer_.data(), read_file(buffer_.data(), buffer_.size())};
  return !waiting_.empty();
}

std::size_t ByteStream::read(char* to, std::size_t bytes) {
  std::size_t room = bytes;
  if (!decoder_) {
    const std::size_t waited = std::min(bytes, waiting_.size());
    std::copy_n(waiting_.data(), waited, to);
    waiting_.remove_prefix(waited);
    return waited + read_file(to + waited, bytes - waited);
  }
  while (room > 0) {
    const bool ended = !fill();
    if (decoder_->step(*this, waiting_, to, room) || !ended) continue;
    if (!decoder_->whole()) refuse("the compressed data is truncated");
    break;
  }
  return bytes - room;
}

void ByteStream::skip(std::uint64_t bytes) {
  if (!decoder_) {
    const std::uint64_t waited = std::min<std::uint64_t>(bytes, waiting_.size());
    waiting_.remove_prefix(static_cast<std::size_t>(waited));
    read_ = std::min(file_bytes_, read_ + (bytes - waited));
    return;
  }
  std::vector<char> lost(buffer_bytes);
  while (bytes > 0) {
    const std::size_t count =
        read(lost.data(), static_cast<std::size_t>(std::min<std::uint64_t>(bytes, lost.size())));
    if (count == 0) return;
    bytes -= count;
  }
}

void ByteStream::refuse(std::string_view what) const {
  fail(ErrorCode::data, "{}: cannot decompress ({}) before offset {}: {}; download or create the file again",
       path_.string(), compression_ == Compression::gzip ? "gzip" : "zstd", file_position(), what);
}

}  // namespace ranvier::models
