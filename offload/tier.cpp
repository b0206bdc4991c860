#include "offload/tier.hpp"

#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::offload {

void Tier::start(std::uint64_t bytes, std::span<std::uint64_t> sums) {
  bytes_ = bytes;
  allocate(bytes, sums);
}

void Tier::move(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done) {
  const bool reads = kind == IoKind::read;
  const char* const what = reads ? "fetch" : "store";
  expect(bytes_.has_value(), "{} before the tier has started", what);
  expect(address <= *bytes_ && memory.size() <= *bytes_ - address, "{} is out of range: {} bytes at {} of {}", what,
         memory.size(), address, *bytes_);
  expect(address % block_bytes == 0 && memory.size() % block_bytes == 0 &&
             reinterpret_cast<std::uintptr_t>(memory.data()) % block_bytes == 0,
         "{} is not aligned: {} bytes at {} with memory at {}; use multiples of {}", what, memory.size(), address,
         static_cast<const void*>(memory.data()), block_bytes);
  (reads ? moved_.read : moved_.written) += memory.size();
  move_blocks(kind, address, memory, std::move(done));
}

}  // namespace ranvier::offload
