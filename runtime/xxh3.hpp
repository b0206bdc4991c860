// XXH3 with 64 bits (https://xxhash.com): tells damaged bytes from those that were meant, as fast as memory is read.
// Not against malice. The same number on every processor. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::runtime {

[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

}  // namespace ranvier::runtime
