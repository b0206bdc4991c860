// Pool of equal slots of pinned host memory, through which transfers of any size pass (ZeRO-Infinity §6.3, "pinned
// memory management layer"). Requests for a slot queue up; nothing is allocated. The pool must outlive the loop's last
// run. Loop thread only.
//
//   pool.acquire([&](std::size_t slot) {
//     tier.fetch(region, 0, pool.slot(slot), [&, slot] { …; pool.release(slot); });
//   });
#pragma once

#include "offload/tier.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/loop/event_loop.hpp"

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

  /// Creates slots of Tier::whole_blocks(slot_bytes).
  StagingPool(runtime::EventLoop& loop, std::string name, std::size_t slot_bytes, std::size_t slots);

  /// Takes the slots that `item` is in the plan of `arena`, which must outlive the pool.
  void start(const runtime::Arena& arena, runtime::MemoryId item);

  /// Calls `granted` on the loop, after this returned, when a slot is free; in the order of the calls.
  void acquire(Granted granted);
  /// Passes a slot to the next request.
  void release(std::size_t slot);

  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] std::size_t slots() const noexcept { return taken_.size(); }

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
};

}  // namespace ranvier::offload
