// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). A
// number depends only on its key and counter, not on grid or thread. Callable from any thread.
#pragma once

#include <array>
#include <cstdint>

namespace ranvier::runtime {

/// Purpose of a stream of random numbers; part of every key, so no two purposes share numbers.
enum class RandomPurpose : std::uint32_t {
  initial_weights = 1,
  dropout,
  sample_order,
  sampling,
  test,
  masking,
  augmentation,
  rounding,
};

struct PhiloxKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

using PhiloxCounter = std::array<std::uint32_t, 4>;

inline constexpr int philox_rounds = 10;
inline constexpr std::uint32_t philox_multiplier0 = 0xD2511F53u, philox_multiplier1 = 0xCD9E8D57u;
inline constexpr PhiloxKey philox_weyl{0x9E3779B9u, 0xBB67AE85u};  ///< added to the key after each round

[[nodiscard]] inline PhiloxCounter philox_round(PhiloxKey key, const PhiloxCounter& counter) {
  const std::uint64_t product0 = std::uint64_t{philox_multiplier0} * counter[0];
  const std::uint64_t product1 = std::uint64_t{philox_multiplier1} * counter[2];
  return {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key.low, static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key.high, static_cast<std::uint32_t>(product0)};
}

[[nodiscard]] inline PhiloxKey next_key(PhiloxKey key) {
  return {key.low + philox_weyl.low, key.high + philox_weyl.high};
}

[[nodiscard]] inline PhiloxCounter philox(PhiloxKey key, PhiloxCounter counter) {
  for (int round = 0; round < philox_rounds; ++round, key = next_key(key)) counter = philox_round(key, counter);
  return counter;
}

/// Key of all numbers for `purpose` under a run's seed.
[[nodiscard]] inline PhiloxKey philox_key(std::uint64_t seed, RandomPurpose purpose) {
  const auto mixed = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {static_cast<std::uint32_t>(purpose), 0, 0, 0});
  return {mixed[0], mixed[1]};
}

/// Uniform in [0, 1) with 24 bits.
[[nodiscard]] inline float uniform(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace ranvier::runtime
