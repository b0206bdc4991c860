#include "runtime/device/pinned_pool.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

namespace ranvier::runtime {

namespace {

constexpr std::size_t smallest_bytes = 4096;

}  // namespace

struct PinnedPool::State {
  /// Smallest free buffer that is large enough; empty if there is none.
  Buffer best_fit(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const auto best = free.lower_bound(bytes);
    return best == free.end() ? Buffer() : std::move(free.extract(best).mapped());
  }

  std::mutex mutex;
  std::multimap<std::size_t, Buffer> free;  ///< by size
  std::size_t allocated_bytes = 0;
  std::size_t largest_bytes = 0;  ///< largest buffer, in use or not
};

PinnedPool::PinnedPool(Device& device, std::string name)
    : device_(&device), name_(std::move(name)), state_(std::make_shared<State>()) {}

std::size_t PinnedPool::buffer_bytes(std::size_t bytes) noexcept {
  return std::bit_ceil(std::max(bytes, smallest_bytes));
}

Buffer PinnedPool::allocate(std::size_t bytes) {
  const std::size_t size = buffer_bytes(bytes);
  try {
    Buffer buffer = device_->allocate(size, MemorySpace::pinned);
    const std::lock_guard lock(state_->mutex);
    state_->allocated_bytes += size;
    state_->largest_bytes = std::max(state_->largest_bytes, size);
    return buffer;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name_, error.what()));
  }
}

std::shared_ptr<std::byte> PinnedPool::lend(Buffer buffer) {
  const auto owner = std::make_shared<Buffer>(std::move(buffer));
  return {owner->data(), [owner, state = state_](std::byte*) {
            const std::lock_guard lock(state->mutex);
            state->free.emplace(owner->bytes(), std::move(*owner));
          }};
}

void PinnedPool::reserve(std::size_t bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Buffer buffer = allocate(bytes);
    const std::lock_guard lock(state_->mutex);
    state_->free.emplace(buffer.bytes(), std::move(buffer));
  }
}

std::shared_ptr<std::byte> PinnedPool::take(std::size_t bytes) {
  Buffer buffer = state_->best_fit(bytes);
  return lend(buffer.data() != nullptr ? std::move(buffer) : allocate(bytes));
}

std::shared_ptr<std::byte> PinnedPool::take_if_free(std::size_t bytes) {
  Buffer buffer = state_->best_fit(bytes);
  if (buffer.data() != nullptr) return lend(std::move(buffer));
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->largest_bytes >= bytes) return nullptr;
  }
  return lend(allocate(bytes));
}

std::size_t PinnedPool::allocated_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->allocated_bytes;
}

}  // namespace ranvier::runtime
