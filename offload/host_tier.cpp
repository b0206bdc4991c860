#include "offload/host_tier.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::offload {

HostTier::HostTier(runtime::EventLoop& loop, Streams streams, runtime::MemorySpace space)
    : loop_(loop), streams_(streams), space_(space) {
  expect(space != runtime::MemorySpace::device, "a tier in device memory would offload nothing");
}

void HostTier::plan(runtime::MemoryPlan& plan) {
  for (const Reserved& region : regions())
    items_.push_back(plan.add({region.kind, space_, region.name + ", host tier", region.bytes, 1}));
}

void HostTier::start(const runtime::Arena& arena) {
  close_reservations();
  expect(items_.size() == regions().size(), "{} of {} regions of the host tier are in the memory plan",
         items_.size(), regions().size());
  arena_ = &arena;
}

std::string HostTier::description() const {
  return fmt::format("{} memory, {}", to_string(space_), runtime::format_bytes(reserved_bytes()));
}

std::span<std::byte> HostTier::memory(Region region) const {
  expect(arena_ != nullptr && region.index < items_.size(), "region {} of a host tier that has {} of {} started",
         region.index, arena_ == nullptr ? 0 : items_.size(), regions().size());
  return {arena_->slot(items_[region.index]), regions()[region.index].bytes};
}

void HostTier::fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) {
  copy(streams_.fetch, to.data(), arena_->slot(items_[region.index]) + offset, to.size(), std::move(done));
}

void HostTier::store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                            runtime::Handler done) {
  copy(streams_.store, arena_->slot(items_[region.index]) + offset, from.data(), from.size(), std::move(done));
}

void HostTier::copy(runtime::StreamView stream, std::byte* to, const std::byte* from, std::size_t bytes,
                    runtime::Handler done) {
  runtime::copy(stream, to, from, bytes);
  stream.call_back([&loop = loop_, done = std::move(done)]() mutable { loop.post(std::move(done)); });
}

}  // namespace ranvier::offload
