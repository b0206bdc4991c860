#include "actors/base/exact_sum.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ranvier::actors {

namespace {

constexpr std::uint64_t digit_mask = 0xffffffff;

/// Carries bits beyond a digit to the next one; the last digit keeps them.
void carry(std::span<std::uint64_t> digits, int bits) {
  for (std::size_t d = 0; d + 1 < digits.size(); ++d) {
    digits[d + 1] += digits[d] >> bits;
    digits[d] &= digit_mask;
  }
}

}  // namespace

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
  auto carried = digits_;
  carry(carried, digit_bits);
  for (std::size_t d = 0; d < digits; ++d) message[d] = static_cast<double>(carried[d]);
  message[digits] = static_cast<double>(infinite_);
  message[digits + 1] = static_cast<double>(no_numbers_);
}

double ExactSum::read(std::span<const double, words> message) {
  if (message[digits + 1] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (message[digits] > 0) return std::numeric_limits<double>::infinity();
  std::array<std::uint64_t, digits> all{};
  for (std::size_t d = 0; d < digits; ++d) all[d] = static_cast<std::uint64_t>(message[d]);
  carry(all, digit_bits);
  if (all.back() > 0) return std::numeric_limits<double>::infinity();
  std::size_t top = digits - 2;
  while (top > 0 && all[top] == 0) --top;
  if (top < 2) return std::ldexp(static_cast<double>(all[1] << digit_bits | all[0]), min_exponent);
  // The highest 64 bits; the last one is also set if any lower bit is. A double has fewer bits, so rounding gives the
  // same result as for the complete sum.
  const int room = std::countl_zero(all[top] << digit_bits);
  std::uint64_t bits = (all[top] << digit_bits | all[top - 1]) << room | all[top - 2] >> (digit_bits - room);
  bool more = (all[top - 2] & (digit_mask >> room)) != 0;
  for (std::size_t d = 0; d + 2 < top; ++d) more = more || all[d] != 0;
  if (more) bits |= 1;
  return std::ldexp(static_cast<double>(bits), static_cast<int>(top - 1) * digit_bits - room + min_exponent);
}

}  // namespace ranvier::actors
