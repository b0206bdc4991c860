// The exact sum of many numbers that are not negative, rounded once at its end: the same bits in whatever order and on
// whatever ranks they are added. What ranks exchange is its words: integers as doubles, which add up without rounding.
//
//   ExactSum mine;
//   for (const double square : squares) mine.add(square);
//   mine.write(message);                                  // then messages are added up, word by word
//   const double total = ExactSum::read(message);
//
// After Kulisch: a number in fixed point that is as long as doubles reach. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::actors {

class ExactSum {
  static constexpr int digit_bits = 32;
  static constexpr int min_exponent = -1074;  // of a double's last bit
  static constexpr int max_exponent = 1024;   // that no double reaches
  // Carries into the last digit are beyond all doubles.
  static constexpr std::size_t digits = (max_exponent - min_exponent) / digit_bits + 2;

 public:
  static constexpr std::size_t words = digits + 2;  ///< digits, and how many were infinite or no numbers
  static constexpr std::size_t max_messages = std::size_t{1} << 21;  ///< that may be added up

  /// `value` is 0 or more, infinite, or no number. No more than 2^30 of them.
  void add(double value);
  void write(std::span<double, words> message) const;
  /// What was added on all ranks, to the nearest double: infinite where one of it was, or no number likewise.
  [[nodiscard]] static double read(std::span<const double, words> message);

 private:
  std::array<std::uint64_t, digits> digits_{};  // the least one first; each may be beyond its bits by carries
  std::uint64_t infinite_ = 0, no_numbers_ = 0;
};

}  // namespace ranvier::actors
