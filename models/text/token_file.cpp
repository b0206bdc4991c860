#include "models/text/token_file.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

namespace ranvier::models {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace fs = std::filesystem;

constexpr std::size_t block_tokens = std::size_t{1} << 16;

template <typename T>
T value_at(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));  // arrays need not be aligned
  return value;
}

std::int32_t header_word(std::span<const std::byte> bytes, std::size_t index) {
  return bytes.size() < (index + 1) * sizeof(std::int32_t) ? 0 : value_at<std::int32_t>(bytes.data(), index);
}

template <typename T>
bool is_outside(T token, std::int64_t vocab_size) {
  return static_cast<std::int64_t>(token) < 0 || static_cast<std::int64_t>(token) >= vocab_size;
}

/// Index of the first token outside [0, `vocab_size`); `count` if all are valid.
template <typename T>
std::size_t first_outside(const std::byte* data, std::size_t count, std::int64_t vocab_size) {
  using Limits = std::numeric_limits<T>;
  if (!Limits::is_signed && static_cast<std::int64_t>(Limits::max()) < vocab_size) return count;
  for (std::size_t begin = 0; begin < count; begin += block_tokens) {
    const std::size_t end = begin + std::min(block_tokens, count - begin);
    T most = 0, least = 0;
    for (std::size_t i = begin; i < end; ++i) {
      most = std::max(most, value_at<T>(data, i));
      least = std::min(least, value_at<T>(data, i));
    }
    if (!is_outside(most, vocab_size) && !is_outside(least, vocab_size)) continue;
    while (!is_outside(value_at<T>(data, begin), vocab_size)) ++begin;
    return begin;
  }
  return count;
}

/// Whether these pairs of 16 bits are halves of wider integers. The upper halves are all 0, or they are all small while
/// the lower halves mostly are not. For 64-bit integers every second pair is 0. Looks at pairs in blocks spread
/// evenly.
bool is_of_wider_tokens(const std::byte* data, std::size_t pairs) {
  constexpr std::size_t min_pairs = 32, blocks = 64, block_pairs = 1024;
  constexpr std::uint16_t max_upper = 64;  // upper half of 4 million
  if (pairs < min_pairs) return false;
  struct Counts {
    std::size_t pairs = 0, upper_zero = 0, upper_low = 0, lower_zero = 0, lower_low = 0;
    [[nodiscard]] bool all_zero() const { return pairs > 0 && upper_zero == pairs && lower_zero == pairs; }
  };
  Counts even, odd;
  for (std::size_t block = 0, end = 0; block < blocks; ++block) {
    std::size_t pair = std::max(end, block * pairs / blocks);
    for (end = std::min(pairs, pair + block_pairs); pair < end; ++pair) {
      const auto lower = value_at<std::uint16_t>(data, 2 * pair),
                 upper = value_at<std::uint16_t>(data, 2 * pair + 1);
      Counts& counts = pair % 2 == 0 ? even : odd;
      ++counts.pairs;
      counts.upper_zero += upper == 0 ? 1 : 0;
      counts.upper_low += upper < max_upper ? 1 : 0;
      counts.lower_zero += lower == 0 ? 1 : 0;
      counts.lower_low += lower < max_upper ? 1 : 0;
    }
  }
  if (odd.all_zero()) return !even.all_zero() && even.upper_low == even.pairs;
  const std::size_t looked_at = even.pairs + odd.pairs;
  if (even.upper_low + odd.upper_low < looked_at || even.lower_zero + odd.lower_zero == looked_at) return false;
  return even.upper_zero + odd.upper_zero == looked_at || even.lower_low + odd.lower_low < looked_at / 2;
}

}  // namespace

std::size_t TokenFile::bytes_of(Type type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto token) { bytes = sizeof token; });
  return bytes;
}

template <typename F>
void TokenFile::with_type(Type type, F&& f) {
  // clang-format off
  switch (type) {
    case Type::u8: return f(std::uint8_t{});
    case Type::i8: return f(std::int8_t{});
    case Type::u16: return f(std::uint16_t{});
    case Type::i16: return f(std::int16_t{});
    case Type::u32: return f(std::uint32_t{});
    case Type::i32: return f(std::int32_t{});
    case Type::i64: return f(std::int64_t{});
  }
  // clang-format on
}

template <typename F>
void TokenFile::for_each_part(std::int64_t first, std::int64_t count, F&& f) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), first,
                                      [](std::int64_t token, const Run& run) { return token < run.first; });
  for (auto run = after - 1; count > 0; ++run) {
    const std::int64_t end = run + 1 == runs_.end() ? tokens_ : run[1].first;
    const std::int64_t part = std::min(count, end - first);
    f(run->offset + static_cast<std::size_t>(first - run->first) * bytes_of(type_), static_cast<std::size_t>(part));
    first += part;
    count -= part;
  }
}

TokenFile::TokenFile(const DataFile& file) : path_(file.path), file_(path_), format_(file.format) {
  expect(
      format_ != TokenFormat::automatic && format_ != TokenFormat::jsonl && file.compression == Compression::none,
      "{}: text is not a token file", path_.string());
  const auto bytes = file_.bytes();
  if (bytes.empty()) fail(ErrorCode::data, "{}: the file is empty; use a file with tokens or text", path_.string());
  data_ = bytes.data();
  if (format_ == TokenFormat::llmc) open_llmc();
  if (format_ == TokenFormat::megatron) open_megatron();
  if (format_ == TokenFormat::text) documents_ = 1, begins_ = {0};
  if (tokens_ > 0) return;
  if (format_ == TokenFormat::uint16) type_ = Type::u16;
  tokens_ = static_cast<std::int64_t>(bytes.size() / bytes_of(type_));
  if (bytes.size() % bytes_of(type_) != 0)
    fail(ErrorCode::data,
         "{}: {} bytes are not a multiple of 2 (uint16): the file is truncated, or it needs another `token_format`",
         path_.string(), bytes.size());
  if (format_ == TokenFormat::uint16 && is_of_wider_tokens(data_, bytes.size() / sizeof(std::uint32_t)))
    fail(ErrorCode::data,
         "{}: tokens have 32 bits or more, not 16: their upper halves are almost 0; write uint16 if all are below "
         "65536, otherwise Megatron's .bin and .idx",
         path_.string());
}

TokenFile::TokenFile(fs::path path, TokensOrText held, std::vector<std::int64_t> begins)
    : path_(std::move(path)), held_(std::move(held)), begins_(std::move(begins)), format_(TokenFormat::text) {
  std::visit(
      [this](const auto& all) {
        type_ = sizeof all[0] == 1 ? Type::u8 : Type::i32;
        data_ = reinterpret_cast<const std::byte*>(all.data());
        tokens_ = std::ssize(all);
      },
      held_);
}

fs::path TokenFile::index_path() const { return fs::path(path_).replace_extension(".idx"); }

std::vector<fs::path> TokenFile::paths() const {
  if (format_ != TokenFormat::megatron) return {path_};
  return {path_, index_path()};
}

void TokenFile::open_llmc() {
  const auto bytes = file_.bytes();
  const std::string file = path_.string();
  if (bytes.size() < llmc_header_bytes)
    fail(ErrorCode::data, "{}: {} bytes are fewer than llm.c's header of {}; the file is truncated", file,
         bytes.size(), llmc_header_bytes);
  const std::int32_t magic = header_word(bytes, 0);
  const std::int32_t version = header_word(bytes, 1);
  const std::int32_t count = header_word(bytes, 2);
  const bool wide = magic == llmc_wide_magic;
  if (magic != llmc_magic && !wide)
    fail(ErrorCode::data,
         "{}: wrong magic number at offset 0: {}, llm.c's are {} and {}; use another `token_format`", file, magic,
         llmc_magic, llmc_wide_magic);
  const std::int32_t known = wide ? llmc_wide_version : llmc_version;
  if (version != known)
    fail(ErrorCode::data,
         "{}: unsupported version at offset 4 of llm.c's header: {}; only {} exists with magic number {}", file,
         version, known, magic);
  if (count <= 0)
    fail(ErrorCode::data, "{}: {} tokens at offset 8 of llm.c's header; at least 1 is needed", file, count);
  type_ = wide ? Type::u32 : Type::u16;
  const std::size_t expected = llmc_header_bytes + static_cast<std::size_t>(count) * bytes_of(type_);
  if (bytes.size() != expected)
    fail(ErrorCode::data,
         "{}: wrong size: {} bytes, but {} tokens (offset 8 of the header) need {}; download the file again", file,
         bytes.size(), count, expected);
  runs_ = {{0, llmc_header_bytes}};
  tokens_ = count;
}

void TokenFile::open_megatron() {
  const runtime::MemoryMap map(index_path());
  const auto bytes = map.bytes();
  const std::string file = index_path().string();
  const auto refuse = [&](std::size_t offset, const std::string& what) {
    fail(ErrorCode::data, "{}: invalid Megatron index: {} at offset {}; create the index again", file, what,
         offset);
  };
  if (bytes.size() < megatron_header_bytes) refuse(bytes.size(), "the file ends");
  if (std::memcmp(bytes.data(), megatron_magic.data(), megatron_magic.size()) != 0)
    refuse(0, "magic MMIDIDX is missing");
  const auto version = value_at<std::uint64_t>(bytes.data() + 9, 0);
  if (version != megatron_version) refuse(9, fmt::format("version {} instead of {}", version, megatron_version));
  const auto code = value_at<std::uint8_t>(bytes.data() + 17, 0);
  static constexpr Type types[] = {Type::u8, Type::i8, Type::i16, Type::i32, Type::i64};
  if (code == 6 || code == 7)
    fail(ErrorCode::data,
         "{}: type code {} at offset 17 means that the .bin file holds floating-point numbers; use an integer type",
         file, code);
  if (code == 0 || code > megatron_uint16) refuse(17, fmt::format("type code {}", code));
  type_ = code == megatron_uint16 ? Type::u16 : types[code - 1];

  const auto sequences = value_at<std::uint64_t>(bytes.data() + 18, 0);
  const auto bounds = value_at<std::uint64_t>(bytes.data() + 26, 0);
  const std::uint64_t rest = bytes.size() - megatron_header_bytes;
  if (sequences == 0 || sequences > rest / 12) refuse(18, fmt::format("{} sequences", sequences));
  if (bounds > (rest - 12 * sequences) / 8 || 12 * sequences + 8 * bounds != rest)
    refuse(26, fmt::format("{} sequences and {} document bounds do not match {} bytes", sequences, bounds,
                           bytes.size()));
  const std::byte* const sizes = bytes.data() + megatron_header_bytes;
  const std::byte* const begins = sizes + 4 * sequences;
  const std::byte* const documents = begins + 8 * sequences;
  const auto offset_of = [&](const std::byte* array, std::size_t bytes_each, std::size_t i) {
    return static_cast<std::size_t>(array - bytes.data()) + bytes_each * i;
  };

  std::int64_t previous = 0;
  for (std::size_t i = 0; i < bounds; ++i) {
    const auto bound = value_at<std::int64_t>(documents, i);
    if (bound < previous || static_cast<std::uint64_t>(bound) > sequences || (i == 0 && bound != 0))
      refuse(offset_of(documents, 8, i),
             fmt::format("document bound {} of {} sequences after {}", bound, sequences, previous));
    previous = bound;
  }
  if (static_cast<std::uint64_t>(previous) != sequences)
    refuse(26, fmt::format("documents cover {} of {} sequences", previous, sequences));

  const std::size_t width = bytes_of(type_);
  const std::size_t data_bytes = file_.bytes().size();
  runs_.clear();
  std::size_t expected = 0;
  for (std::size_t i = 0; i < sequences; ++i) {
    const auto size = value_at<std::int32_t>(sizes, i);
    const auto begin = value_at<std::int64_t>(begins, i);
    if (size < 0) refuse(offset_of(sizes, 4, i), fmt::format("a sequence of {} tokens", size));
    const std::size_t sequence_bytes = static_cast<std::size_t>(size) * width;
    if (begin < 0 || static_cast<std::size_t>(begin) > data_bytes ||
        sequence_bytes > data_bytes - static_cast<std::size_t>(begin))
      refuse(offset_of(begins, 8, i), fmt::format("a sequence of {} tokens at offset {} of {} bytes in {}", size,
                                                  begin, data_bytes, path_.string()));
    if (size == 0) continue;
    if (runs_.empty() || static_cast<std::size_t>(begin) != expected)
      runs_.push_back({tokens_, static_cast<std::size_t>(begin)});
    expected = static_cast<std::size_t>(begin) + sequence_bytes;
    tokens_ += size;
  }
  if (tokens_ == 0) refuse(megatron_header_bytes, "no sequence with a token");
  documents_ = static_cast<std::int64_t>(bounds) - 1;
}

std::vector<std::int64_t> TokenFile::megatron_begins() const {
  const runtime::MemoryMap map(index_path());  // which was checked on opening
  const std::byte* const header = map.bytes().data();
  const auto sequences = value_at<std::uint64_t>(header + 18, 0), bounds = value_at<std::uint64_t>(header + 26, 0);
  const std::byte* const sizes = header + megatron_header_bytes;
  const std::byte* const documents = sizes + 12 * sequences;
  std::vector<std::int64_t> begins;
  std::int64_t token = 0;
  for (std::size_t sequence = 0, bound = 0; sequence < sequences; ++sequence) {
    bool begin = false;
    for (; bound < bounds && value_at<std::int64_t>(documents, bound) == static_cast<std::int64_t>(sequence);
         ++bound)
      begin = true;
    if (begin && (begins.empty() || begins.back() < token)) begins.push_back(token);
    token += value_at<std::int32_t>(sizes, sequence);
  }
  while (!begins.empty() && begins.back() >= tokens_) begins.pop_back();  // documents without a token
  return begins;
}

std::vector<std::int64_t> TokenFile::document_begins(std::int32_t end, int vocab_size) const {
  if (format_ == TokenFormat::text) return begins_;
  if (format_ == TokenFormat::megatron) return megatron_begins();
  std::vector<std::int64_t> begins{0};
  std::vector<std::int32_t> block(block_tokens);
  for (std::int64_t first = 0; first < tokens_; first += std::ssize(block)) {
    const std::int64_t count = std::min(std::ssize(block), tokens_ - first);
    read(first, count, vocab_size, block.data());
    for (std::int64_t i = 0; i < count; ++i)
      if (block[static_cast<std::size_t>(i)] == end && first + i + 1 < tokens_) begins.push_back(first + i + 1);
  }
  return begins;
}

void TokenFile::check_vocabulary(std::int64_t first, std::int64_t count, int vocab_size) const {
  for_each_part(first, count, [&](std::size_t offset, std::size_t n) {
    with_type(type_, [&](auto zero) {
      using Token = decltype(zero);
      const std::size_t outside = first_outside<Token>(data_ + offset, n, vocab_size);
      if (outside == n) return;
      const auto token = static_cast<std::int64_t>(value_at<Token>(data_ + offset, outside));
      constexpr std::string_view damaged = "the data is damaged, or needs another `token_format`";
      const std::string remedy =
          token < 0 ? fmt::format("tokens are not negative: {}", damaged)
          : token >= std::numeric_limits<std::int32_t>::max()
              ? fmt::format("no vocabulary is that large: {}", damaged)
          : format_ == TokenFormat::text && type_ == Type::i32
              ? fmt::format("use the `tokenizer` of the model's training, or at least {}", token + 1)
              : fmt::format("use at least {}", token + 1);
      const std::size_t at = offset + outside * sizeof(Token);
      const bool mapped = !file_.bytes().empty();
      fail(ErrorCode::data, "{}: token {} at {} {} is outside `vocab_size` {}; {}", path_.string(), token,
           mapped ? "offset" : "position", mapped ? at : at / sizeof(Token), vocab_size, remedy);
    });
  });
}

void TokenFile::read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const {
  expect(first >= 0 && count >= 0 && count <= tokens_ - first, "{}: tokens are out of range: {} to {} of {}",
         path_.string(), first, first + count, tokens_);
  check_vocabulary(first, count, vocab_size);
  for_each_part(first, count, [&](std::size_t offset, std::size_t n) {
    with_type(type_, [&](auto zero) {
      for (std::size_t i = 0; i < n; ++i)
        to[i] = static_cast<std::int32_t>(value_at<decltype(zero)>(data_ + offset, i));
    });
    to += n;
  });
}

void TokenFile::will_read(std::int64_t first, std::int64_t count) const {
  if (file_.bytes().empty()) return;
  for_each_part(first, count,
                [&](std::size_t offset, std::size_t n) { file_.will_need(offset, n * bytes_of(type_)); });
}

}  // namespace ranvier::models
