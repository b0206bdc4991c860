#include "models/text/token_file.hpp"

#include "models/text/token_formats.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ranvier::models {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::size_t block_tokens = std::size_t{1} << 16;

std::int32_t header_word(std::span<const std::byte> bytes, std::size_t index) {
  std::int32_t word = 0;
  if (bytes.size() >= (index + 1) * sizeof(word))
    std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

template <typename T>
T token_at(const std::byte* data, std::size_t index) {
  T token;
  std::memcpy(&token, data + index * sizeof(T), sizeof(T));
  return token;
}

template <typename T>
T largest(const std::byte* data, std::size_t count) {
  T most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, token_at<T>(data, i));
  return most;
}

/// The index of the first token that is not below `vocab_size`; `count` if there is none.
template <typename T>
std::size_t first_outside(const std::byte* data, std::size_t count, std::size_t vocab_size) {
  for (std::size_t begin = 0; begin < count; begin += block_tokens) {
    const std::size_t block = std::min(block_tokens, count - begin);
    if (largest<T>(data + begin * sizeof(T), block) < vocab_size) continue;
    while (token_at<T>(data, begin) < vocab_size) ++begin;
    return begin;
  }
  return count;
}

template <typename T>
void widen(const std::byte* data, std::size_t count, std::int32_t* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = token_at<T>(data, i);
}

TokenFormat recognise(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  if (header_word(bytes, 0) == llmc_magic) return TokenFormat::llmc;
  if (path.extension() == ".bin")
    fail(ErrorCode::data,
         "{}: a .bin that begins with {}, not with llm.c's magic number {}: give --token-format uint16 for "
         "tokens without a header, or text",
         path.string(), header_word(bytes, 0), llmc_magic);
  return TokenFormat::text;
}

std::int64_t llmc_tokens(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::string file = path.string();
  if (bytes.size() < llmc_header_bytes)
    fail(ErrorCode::data, "{}: {} bytes are too few for llm.c's header of {}: the file is truncated", file,
         bytes.size(), llmc_header_bytes);
  const std::int32_t magic = header_word(bytes, 0);
  const std::int32_t version = header_word(bytes, 1);
  const std::int32_t count = header_word(bytes, 2);
  if (magic != llmc_magic)
    fail(ErrorCode::data, "{}: magic number {} at offset 0, not llm.c's {}: give the right --token-format", file,
         magic, llmc_magic);
  if (version != llmc_version)
    fail(ErrorCode::data, "{}: version {} at offset 4 of llm.c's header: only version {} is known", file, version,
         llmc_version);
  if (count <= 0)
    fail(ErrorCode::data, "{}: {} tokens at offset 8 of llm.c's header: at least 1 is needed", file, count);
  const std::size_t expected = llmc_header_bytes + static_cast<std::size_t>(count) * sizeof(std::uint16_t);
  if (bytes.size() != expected)
    fail(ErrorCode::data, "{}: {} bytes, but {} tokens (offset 8 of the header) need {}: the file is damaged", file,
         bytes.size(), count, expected);
  return count;
}

}  // namespace

TokenFile::TokenFile(std::filesystem::path path, TokenFormat format)
    : path_(std::move(path)), file_(path_), format_(format) {
  const auto bytes = file_.bytes();
  if (bytes.empty()) fail(ErrorCode::data, "{}: the file is empty: give one with tokens or text", path_.string());
  if (format_ == TokenFormat::automatic) format_ = recognise(path_, bytes);
  data_ = bytes.data();
  tokens_ = static_cast<std::int64_t>(bytes.size());
  if (format_ == TokenFormat::text) return;
  token_bytes_ = sizeof(std::uint16_t);
  if (format_ == TokenFormat::llmc) {
    tokens_ = llmc_tokens(path_, bytes);
    data_ += llmc_header_bytes;
    return;
  }
  if (bytes.size() % sizeof(std::uint16_t) != 0)
    fail(ErrorCode::data,
         "{}: {} bytes are no whole number of uint16 tokens: the file is truncated, or give the right "
         "--token-format",
         path_.string(), bytes.size());
  tokens_ /= static_cast<std::int64_t>(sizeof(std::uint16_t));
}

void TokenFile::check_vocabulary(std::int64_t first, std::int64_t count, int vocab_size) const {
  const auto limit = static_cast<std::size_t>(vocab_size);
  if (limit > (token_bytes_ == 1 ? 0xffu : 0xffffu)) return;
  const std::byte* const from = data_ + static_cast<std::size_t>(first) * token_bytes_;
  const auto n = static_cast<std::size_t>(count);
  const std::size_t outside = token_bytes_ == 1 ? first_outside<std::uint8_t>(from, n, limit)
                                                : first_outside<std::uint16_t>(from, n, limit);
  if (outside == n) return;
  std::int32_t token = 0;
  const std::int64_t position = first + static_cast<std::int64_t>(outside);
  read(position, 1, &token);
  fail(ErrorCode::data, "{}: token {} at offset {} is outside the vocabulary of --vocab-size {}: give at least {}",
       path_.string(), token, from - file_.bytes().data() + static_cast<std::ptrdiff_t>(outside * token_bytes_),
       vocab_size, token + 1);
}

void TokenFile::read(std::int64_t first, std::int64_t count, std::int32_t* to) const {
  expect(first >= 0 && count >= 0 && count <= tokens_ - first, "{}: tokens {} to {} of {}", path_.string(), first,
         first + count, tokens_);
  const std::byte* const from = data_ + static_cast<std::size_t>(first) * token_bytes_;
  const auto n = static_cast<std::size_t>(count);
  if (token_bytes_ == 1)
    widen<std::uint8_t>(from, n, to);
  else
    widen<std::uint16_t>(from, n, to);
}

}  // namespace ranvier::models
