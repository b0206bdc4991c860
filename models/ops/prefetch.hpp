// Memory that is read once and in order, asked for before it is needed: where a processor's own guesses are late, and
// where a short array ends and the next begins, at which it cannot guess.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// How far ahead of what is read.
inline constexpr std::size_t prefetched_bytes = 4096;

/// Fetches the cache lines of the `bytes` bytes at `place`, which need not be memory of this program.
template <std::size_t bytes>
inline void prefetch(std::uintptr_t place) {
  constexpr std::size_t line_bytes = 64;
#pragma GCC unroll 8
  for (std::size_t at = 0; at < bytes; at += line_bytes)
    __builtin_prefetch(reinterpret_cast<const void*>(place + at));
}

}  // namespace ranvier::models
