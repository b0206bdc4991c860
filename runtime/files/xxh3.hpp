// XXH3 with 64 bits (https://xxhash.com): checksum against accidental damage, at memory speed. Not cryptographic. Same
// value on every processor. Callable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::runtime {

[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

}  // namespace ranvier::runtime
