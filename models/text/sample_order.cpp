#include "models/text/sample_order.hpp"

#include "runtime/base/error.hpp"

#include <bit>

namespace ranvier::models {
namespace {

constexpr std::uint32_t rounds = 6;

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed)
    : samples_(samples), key_(runtime::philox_key(seed, runtime::RandomPurpose::sample_order)) {
  expect(samples >= 1, "sample order is empty: {} samples", samples);
  half_bits_ = (std::bit_width(static_cast<std::uint64_t>(samples) - 1) + 1) / 2;
}

std::int64_t SampleOrder::operator()(std::int64_t n) const {
  const auto epoch = static_cast<std::uint64_t>(n / samples_);
  auto index = static_cast<std::uint64_t>(n % samples_);
  do {
    index = permute(index, epoch);
  } while (index >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(index);
}

std::uint64_t SampleOrder::permute(std::uint64_t index, std::uint64_t epoch) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = index >> half_bits_;
  std::uint64_t right = index & mask;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto mixed =
        runtime::philox(key_, {static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(epoch),
                               static_cast<std::uint32_t>(epoch >> 32)});
    const std::uint64_t next = left ^ (mixed[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace ranvier::models
