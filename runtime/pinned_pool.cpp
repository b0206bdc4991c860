#include "runtime/pinned_pool.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

namespace ranvier::runtime {

namespace {

constexpr std::size_t smallest_bytes = 4096;

}  // namespace

struct PinnedPool::State {
  std::mutex mutex;
  std::vector<Buffer> free;
  std::size_t allocated_bytes = 0;
};

PinnedPool::PinnedPool(Device& device) : device_(&device), state_(std::make_shared<State>()) {}

std::shared_ptr<std::byte> PinnedPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest_bytes));  // few sizes, so that buffers fit again
  Buffer buffer;
  {
    const std::lock_guard lock(state_->mutex);
    const auto fitting =
        std::find_if(state_->free.begin(), state_->free.end(), [&](const Buffer& free) { return free.bytes() == size; });
    if (fitting != state_->free.end()) {
      buffer = std::move(*fitting);
      state_->free.erase(fitting);
    }
  }
  if (buffer.data() == nullptr) {
    buffer = device_->allocate(size, MemorySpace::pinned);
    const std::lock_guard lock(state_->mutex);
    state_->allocated_bytes += size;
  }
  const auto owner = std::make_shared<Buffer>(std::move(buffer));
  return {owner->data(), [owner, state = state_](std::byte*) {
            const std::lock_guard lock(state->mutex);
            state->free.push_back(std::move(*owner));
          }};
}

std::size_t PinnedPool::allocated_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->allocated_bytes;
}

}  // namespace ranvier::runtime
