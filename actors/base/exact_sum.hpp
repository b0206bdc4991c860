// Exact sum of non-negative numbers (Kulisch accumulator): it is rounded once at the end, so its bits depend neither on
// the order nor on the distribution over ranks. Ranks add messages word by word: words are integers stored as doubles.
// Any thread.
//
//   ExactSum mine;
//   for (const double square : squares) mine.add(square);
//   mine.write(message);                                  // then add the messages of all ranks, word by word
//   const double total = ExactSum::read(message);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::actors {

class ExactSum {
  static constexpr int digit_bits = 32;
  static constexpr std::uint64_t digit_mask = 0xffffffff;
  static constexpr int min_exponent = -1074;  // exponent of the smallest bit of any double
  static constexpr int max_exponent = 1024;   // above the exponent of any double
  // Carries into the last digit exceed all doubles.
  static constexpr std::size_t digits = (max_exponent - min_exponent) / digit_bits + 2;

 public:
  static constexpr std::size_t words = digits + 2;                   ///< digits, and counts of infinities and NaNs
  static constexpr std::size_t max_messages = std::size_t{1} << 21;  ///< maximum number of messages in a sum

  /// Adds a value: 0 or more, infinite, or NaN. At most 2^30 calls.
  void add(double value);
  void write(std::span<double, words> message) const;
  /// Sum over all ranks, rounded to the nearest double; infinite or NaN if any value was.
  [[nodiscard]] static double read(std::span<const double, words> message);

 private:
  std::array<std::uint64_t, digits> digits_{};  // least significant first; may contain unpropagated carries
  std::uint64_t infinite_ = 0, no_numbers_ = 0;
};

}  // namespace ranvier::actors
