// Virtual clock with a heap of future events; it advances when the current time has none left. Streams of phantom
// devices, links, disks and loops of a VirtualCluster share one. One thread.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ranvier::runtime {

class VirtualTime {
 public:
  using Action = std::function<void()>;

  [[nodiscard]] Duration now() const noexcept { return now_; }

  /// Runs `action` at `time`, or now if that has passed. Actions of the same time run in the order of the calls.
  void at(Duration time, Action action);
  /// Runs `action` at the current time, after all its other actions.
  void at_the_end_of_now(Action action);

  /// Runs the next action; false if there is none.
  bool step();

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  /// Small, since a heap moves its entries often.
  struct Entry {
    std::int64_t time = 0;
    std::uint64_t number = 0;
    std::size_t action = 0;
  };
  static bool later(const Entry& a, const Entry& b) noexcept {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }
  void add(Duration time, std::uint64_t number, Action action);

  Duration now_{};
  std::uint64_t steps_ = 0, made_ = 0;
  std::vector<Entry> heap_;
  std::vector<Action> actions_;
  std::vector<std::size_t> free_;
};

}  // namespace ranvier::runtime
