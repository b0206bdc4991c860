// Seeds of random tests, and how much a test tries where each try takes ten times as long.
#pragma once

#include <cstdint>
#include <vector>

namespace ranvier::test {

/// Whether a sanitizer watches this program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// Of a test that runs with many seeds: first, first + 1, … `count` of them, sanitized an eighth of many; or the one
/// that `<program> --seed=N` names, to repeat what failed.
[[nodiscard]] std::vector<std::uint64_t> seeds(std::uint64_t count, std::uint64_t first = 0);

/// Of a test that draws one: anew in every run, or N. Print it where a check fails: CAPTURE(random_seed()).
[[nodiscard]] std::uint64_t random_seed() noexcept;

/// Ranks that a test of all numbers of them goes up to.
inline constexpr int max_ranks = sanitized ? 6 : 9;

}  // namespace ranvier::test
