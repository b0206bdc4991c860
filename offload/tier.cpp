#include "offload/tier.hpp"

#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::offload {

Region Tier::reserve(runtime::MemoryKind kind, std::string name, std::size_t bytes) {
  expect(!started_, "cannot reserve {} bytes for {}: the tier has started", bytes, name);
  regions_.push_back({kind, std::move(name), whole_blocks(bytes)});
  return {regions_.size() - 1};
}

void Tier::check(const char* what, Region region, std::size_t offset, const std::byte* data,
                 std::size_t bytes) const {
  expect(started_, "{} before the tier has started", what);
  expect(region.index < regions_.size(), "{}: region is out of range: {} of {}", what, region.index,
         regions_.size());
  const Reserved& reserved = regions_[region.index];
  expect(offset <= reserved.bytes && bytes <= reserved.bytes - offset,
         "{} is out of range: bytes {} to {} of {}, which has {}", what, offset, offset + bytes, reserved.name,
         reserved.bytes);
  expect(offset % block_bytes == 0 && bytes % block_bytes == 0 &&
             reinterpret_cast<std::uintptr_t>(data) % block_bytes == 0,
         "{} is not aligned: {} bytes at offset {} of {} with memory at {}; use multiples of {}", what, bytes,
         offset, reserved.name, static_cast<const void*>(data), block_bytes);
}

void Tier::fetch(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) {
  check("fetch", region, offset, to.data(), to.size());
  fetched_ += to.size();
  fetch_blocks(region, offset, to, std::move(done));
}

void Tier::store(Region region, std::size_t offset, std::span<const std::byte> from, runtime::Handler done) {
  check("store", region, offset, from.data(), from.size());
  stored_ += from.size();
  store_blocks(region, offset, from, std::move(done));
}

}  // namespace ranvier::offload
