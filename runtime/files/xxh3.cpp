// The only translation unit that compiles xxHash, with the vector instructions of this build's processor.
#define XXH_INLINE_ALL
#include "runtime/files/xxh3.hpp"

#include <xxhash.h>

namespace ranvier::runtime {

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace ranvier::runtime
