// How much of a text is none: bytes that belong to no UTF-8 character, and control characters other than those that
// lay text out. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

class TextSurvey {
 public:
  /// The next piece. A character that it cuts is whole with the next one.
  void add(std::string_view piece);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t strange() const noexcept { return strange_ + unfinished_.size(); }
  /// Where the first of them was.
  [[nodiscard]] std::optional<std::uint64_t> first() const noexcept {
    return first_ || unfinished_.empty() ? first_ : bytes_ - unfinished_.size();
  }
  /// Whether bytes beyond ASCII are an encoding's such as Latin-1 or Shift JIS, rather than damaged UTF-8: most of them
  /// are in no UTF-8 character.
  [[nodiscard]] bool is_other_encoding() const noexcept { return stray_ >= 3 && stray_ > wide_; }
  /// Offset of the first byte beyond ASCII that is in no UTF-8 character.
  [[nodiscard]] std::uint64_t first_stray() const noexcept { return first_stray_.value_or(0); }
  /// False where so many are strange that it is no damage: numbers, programs and what is compressed have half and more.
  /// Few bytes say nothing.
  [[nodiscard]] bool is_text() const noexcept { return bytes_ < 64 || strange() * 10 <= bytes_ * 3; }

 private:
  /// `continues`: the byte at `offset` is one that follows others in a UTF-8 character.
  void add_stray(std::uint64_t offset, std::uint64_t count, bool continues);

  std::uint64_t bytes_ = 0, strange_ = 0;
  std::uint64_t stray_ = 0, wide_ = 0;  // damaged places beyond ASCII, and characters beyond ASCII
  std::uint64_t stray_end_ = 0;         // offset behind the last of these places
  std::optional<std::uint64_t> first_, first_stray_;
  std::string unfinished_;  // at the end: the beginning of a character, if more of it follows
};

/// The command that makes UTF-8 of a file in another encoding.
[[nodiscard]] std::string conversion_to_utf8(const std::filesystem::path& file);

/// "a.txt: 3 of the 4711 bytes looked at belong to no UTF-8 text, the first at offset 17", where some do not.
[[nodiscard]] std::string remark_on(const TextSurvey& survey, const std::filesystem::path& file);

}  // namespace ranvier::models
