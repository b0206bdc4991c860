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
  /// False where so many are strange that it is no damage: numbers, programs and what is compressed have half and more.
  /// Few bytes say nothing.
  [[nodiscard]] bool is_text() const noexcept { return bytes_ < 64 || strange() * 10 <= bytes_ * 3; }

 private:
  std::uint64_t bytes_ = 0, strange_ = 0;
  std::optional<std::uint64_t> first_;
  std::string unfinished_;  // at the end: the beginning of a character, if more of it follows
};

/// "a.txt: 3 of the 4711 bytes looked at belong to no UTF-8 text, the first at offset 17", where some do not.
[[nodiscard]] std::string remark_on(const TextSurvey& survey, const std::filesystem::path& file);

}  // namespace ranvier::models
