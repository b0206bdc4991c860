// The seed of a program's random tests: drawn anew for every run, or given by `--seed=N` to repeat one.
#pragma once

#include <cstdint>

namespace ranvier::tests {

/// Print it where a check fails: CAPTURE(random_seed()).
[[nodiscard]] std::uint64_t random_seed() noexcept;

}  // namespace ranvier::tests
