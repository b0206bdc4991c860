// Staging memory of fixed size: equal slots of pinned host memory that transfers of any amount pass through
// (ZeRO-Infinity §6.3, "pinned memory management layer"). Who wants a slot waits in line; nothing is allocated.
//
//   StagingPool pool(loop, "staging", bytes, 4);
//   pool.plan(plan);
//   pool.start(arena);
//   pool.acquire([&](std::size_t slot) { tier.fetch(region, 0, pool.slot(slot), [&, slot] { …; pool.release(slot);
//   }); });
//
// Loop thread only. The pool outlives the loop's last run.
#pragma once

#include "offload/tier.hpp"
#include "runtime/arena.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

class StagingPool {
 public:
  using Granted = std::function<void(std::size_t slot)>;

  /// Slots of Tier::whole_blocks(slot_bytes).
  StagingPool(runtime::EventLoop& loop, std::string name, std::size_t slot_bytes, std::size_t slots);

  void plan(runtime::MemoryPlan& plan);
  /// `arena` is made from the plan and outlives the pool.
  void start(const runtime::Arena& arena) { start(arena, item_); }
  /// Where the slots are an item of the plan that somebody else added.
  void start(const runtime::Arena& arena, runtime::MemoryId item);

  /// Calls `granted` on the loop, after this returned, when a slot is free and who asked before has one.
  void acquire(Granted granted);
  /// Gives a slot to the next in line.
  void release(std::size_t slot);

  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] std::size_t slots() const noexcept { return taken_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return line_.size(); }
  /// The most slots that were taken at a time so far: whether fewer would do.
  [[nodiscard]] std::size_t max_taken() const noexcept { return max_taken_; }

 private:
  void grant();

  runtime::EventLoop& loop_;
  const std::string name_;
  const std::size_t slot_bytes_;

  runtime::MemoryId item_;
  const runtime::Arena* arena_ = nullptr;

  std::vector<bool> taken_;
  std::vector<std::size_t> free_;
  std::deque<Granted> line_;
  std::size_t max_taken_ = 0;
};

}  // namespace ranvier::offload
