// Seeds of random tests. Each test runs with many; `<program> --seed=N` runs it with the one that failed.
#pragma once

#include <cstdint>
#include <vector>

namespace ranvier::test {

/// first, first + 1, … `count` of them; or the one that the command line names.
[[nodiscard]] std::vector<std::uint64_t> seeds(std::uint64_t count, std::uint64_t first = 0);

}  // namespace ranvier::test
