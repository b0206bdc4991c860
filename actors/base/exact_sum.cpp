#include "actors/base/exact_sum.hpp"

#include "runtime/base/error.hpp"

#include <boost/multiprecision/cpp_int.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ranvier::actors {

void ExactSum::add(double value) {
  if (std::isnan(value)) {
    ++no_numbers_;
    return;
  }
  expect(value >= 0, "value of an exact sum is negative: {}", value);
  if (std::isinf(value)) {
    ++infinite_;
    return;
  }
  if (value == 0) return;
  // value = fraction · 2^exponent; the fraction is an integer of at most 53 bits.
  const int exponent = std::max(std::ilogb(value) + 1 - std::numeric_limits<double>::digits, min_exponent);
  const auto fraction = static_cast<std::uint64_t>(std::ldexp(value, -exponent));
  const int place = exponent - min_exponent;
  const auto digit = static_cast<std::size_t>(place / digit_bits);
  const int shift = place % digit_bits;
  // 53 bits, shifted by up to 31, occupy at most three digits.
  const std::uint64_t low = (fraction & digit_mask) << shift, high = (fraction >> digit_bits) << shift;
  digits_[digit] += low & digit_mask;
  digits_[digit + 1] += (low >> digit_bits) + (high & digit_mask);
  digits_[digit + 2] += high >> digit_bits;
}

void ExactSum::write(std::span<double, words> message) const {
  std::uint64_t carried = 0;
  for (std::size_t d = 0; d < digits; ++d) {
    carried += digits_[d];
    // The last digit keeps bits beyond its size.
    message[d] = static_cast<double>(d + 1 < digits ? carried & digit_mask : carried);
    carried >>= digit_bits;
  }
  message[digits] = static_cast<double>(infinite_);
  message[digits + 1] = static_cast<double>(no_numbers_);
}

double ExactSum::read(std::span<const double, words> message) {
  if (message[digits + 1] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (message[digits] > 0) return std::numeric_limits<double>::infinity();
  boost::multiprecision::cpp_int sum;
  for (std::size_t d = digits; d-- > 0;) sum = (sum << digit_bits) + static_cast<std::uint64_t>(message[d]);
  if (sum == 0) return 0;
  // The highest 64 bits; the last one is also set if any lower bit is. A double has fewer bits, so rounding gives the
  // same result as for the complete sum.
  const auto dropped = std::max<std::size_t>(msb(sum), 63) - 63;
  auto bits = static_cast<std::uint64_t>(sum >> dropped);
  if (lsb(sum) < dropped) bits |= 1;
  return std::ldexp(static_cast<double>(bits), static_cast<int>(dropped) + min_exponent);
}

}  // namespace ranvier::actors
