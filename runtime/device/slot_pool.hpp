// A few equal buffers of the memory plan that serve many users. Users that find none free wait in order. Loop thread
// only.
//
//   slots.when_free([this](const SlotPool::Slot& slot) { … });   // during the call, or in a later serve()
//   slot.release();                                              // or destroy all copies
//   slots.serve();                                               // continue with the users that wait
#pragma once

#include "runtime/device/arena.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::runtime {

class SlotPool {
 public:
  struct Plan {
    MemoryId memory;
    std::size_t bytes = 0, slots = 0;  ///< bytes per slot
  };
  [[nodiscard]] static Plan plan(MemoryPlan& memory, const MemoryItem& item) {
    return {memory.add(item), item.slot_bytes, item.slots};
  }

  /// A slot in use. It returns to its pool with the last copy, or by release(), which empties all copies: handlers may
  /// keep copies for longer. Slots may outlive the pool.
  class Slot {
   public:
    /// Null if empty.
    [[nodiscard]] std::byte* data(std::size_t offset = 0) const noexcept {
      return memory_ && *memory_ ? memory_->get() + offset : nullptr;
    }
    void release() const noexcept {
      if (memory_) memory_->reset();
    }

   private:
    friend class SlotPool;
    std::shared_ptr<std::shared_ptr<std::byte>> memory_;
  };
  using User = std::function<void(const Slot& slot)>;

  /// Slots of any memory, which must outlive them.
  explicit SlotPool(std::span<std::byte* const> slots) { free_->assign(slots.rbegin(), slots.rend()); }
  SlotPool(const Arena& arena, const Plan& plan) {
    for (std::size_t s = 0; s < plan.slots; ++s) free_->push_back(arena.slot(plan.memory, s));
  }

  [[nodiscard]] bool has_free() const noexcept { return !free_->empty(); }
  /// Requires has_free().
  [[nodiscard]] Slot take() {
    Slot slot;
    slot.memory_ = std::make_shared<std::shared_ptr<std::byte>>(
        free_->back(), [free = free_](std::byte* memory) { free->push_back(memory); });
    free_->pop_back();
    return slot;
  }
  void when_free(User user) {
    users_.push_back(std::move(user));
    serve();
  }
  /// Gives free slots to the users that wait, in order.
  void serve() {
    while (!users_.empty() && has_free()) {
      const User user = std::move(users_.front());
      users_.pop_front();
      user(take());
    }
  }

 private:
  std::shared_ptr<std::vector<std::byte*>> free_ = std::make_shared<std::vector<std::byte*>>();
  std::deque<User> users_;
};

}  // namespace ranvier::runtime
