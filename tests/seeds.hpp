// Seeds of random tests, whether a sanitizer is active, and the largest number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace ranvier::test {

/// Whether a sanitizer is active in this program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
/// Whether it is ThreadSanitizer, for which values and sizes hardly matter.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool finds_races = true;
#else
inline constexpr bool finds_races = false;
#endif

/// Seeds of a test that runs with many: first, first + 1, … `count` of them, with a sanitizer an eighth if there are
/// many; or only the seed of `<program> --seed=N`, to repeat a failure.
[[nodiscard]] std::vector<std::uint64_t> seeds(std::uint64_t count, std::uint64_t first = 0);

/// Seed of a test that draws one: new in every run, or N. Print it when a check fails: CAPTURE(random_seed()).
[[nodiscard]] std::uint64_t random_seed() noexcept;

/// Maximum number of ranks of a test that runs with all numbers.
inline constexpr int max_ranks = sanitized ? 6 : 9;

}  // namespace ranvier::test
