// Counts bytes that are not text: bytes outside UTF-8 characters, and control characters other than layout. One
// thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

class TextSurvey {
 public:
  /// Adds the next piece. A character that is cut is completed by the next piece.
  void add(std::string_view piece);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t strange() const noexcept { return strange_ + unfinished_.size(); }
  /// Offset of the first such byte.
  [[nodiscard]] std::optional<std::uint64_t> first() const noexcept {
    return first_ || unfinished_.empty() ? first_ : bytes_ - unfinished_.size();
  }
  /// Whether bytes beyond ASCII come from another encoding such as Latin-1 or Shift JIS, not from damage: most of
  /// them are not UTF-8.
  [[nodiscard]] bool is_other_encoding() const noexcept { return stray_ >= 3 && stray_ > wide_; }
  /// Offset of the first byte beyond ASCII that is not UTF-8.
  [[nodiscard]] std::uint64_t first_stray() const noexcept { return first_stray_.value_or(0); }
  /// False if too many bytes are strange for damaged text: numbers, programs and compressed data have at least half.
  /// Needs 64 bytes to decide.
  [[nodiscard]] bool is_text() const noexcept { return bytes_ < 64 || strange() * 10 <= bytes_ * 3; }

 private:
  /// `continues`: the byte at `offset` is a UTF-8 continuation byte.
  void add_stray(std::uint64_t offset, std::uint64_t count, bool continues);

  std::uint64_t bytes_ = 0, strange_ = 0;
  std::uint64_t stray_ = 0, wide_ = 0;  // damaged bytes beyond ASCII, and characters beyond ASCII
  std::uint64_t stray_end_ = 0;         // offset behind the last damaged byte
  std::optional<std::uint64_t> first_, first_stray_;
  std::string unfinished_;  // incomplete character at the end
};

/// Command that converts a file in another encoding to UTF-8.
[[nodiscard]] std::string conversion_to_utf8(const std::filesystem::path& file);

/// "a.txt: 3 of the 4711 bytes examined are not UTF-8, the first at offset 17"; empty if all are.
[[nodiscard]] std::string remark_on(const TextSurvey& survey, const std::filesystem::path& file);

}  // namespace ranvier::models
