#include "offload/staging_pool.hpp"

#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::offload {

StagingPool::StagingPool(runtime::EventLoop& loop, std::string name, std::size_t slot_bytes, std::size_t slots)
    : loop_(loop), name_(std::move(name)), slot_bytes_(Tier::whole_blocks(slot_bytes)), taken_(slots, false) {
  expect(slots > 0, "the pool {} has no slots", name_);
  for (std::size_t slot = slots; slot-- > 0;) free_.push_back(slot);
}

void StagingPool::start(const runtime::Arena& arena, runtime::MemoryId item) {
  arena_ = &arena;
  item_ = item;
}

void StagingPool::acquire(Granted granted) {
  line_.push_back(std::move(granted));
  grant();
}

void StagingPool::release(std::size_t slot) {
  expect(slot < slots() && taken_[slot], "slot {} of the pool {} is released, but not taken", slot, name_);
  taken_[slot] = false;
  free_.push_back(slot);
  grant();
}

void StagingPool::grant() {
  while (!line_.empty() && !free_.empty()) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    taken_[slot] = true;
    loop_.post([granted = std::move(line_.front()), slot] { granted(slot); });
    line_.pop_front();
  }
}

std::span<std::byte> StagingPool::slot(std::size_t index) const {
  expect(arena_ != nullptr, "the pool {} has not started", name_);
  return {arena_->slot(item_, index), slot_bytes_};
}

}  // namespace ranvier::offload
