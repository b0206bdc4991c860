// Virtual clock with a heap of future events; it advances when the current time has none left. Streams of phantom
// devices, links, disks and loops of a Simulation share one. One thread.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace ranvier::runtime {

[[nodiscard]] inline Duration duration(double seconds) { return Duration(std::llround(seconds * 1e9)); }

class VirtualTime {
 public:
  using Action = std::function<void()>;

  [[nodiscard]] Duration now() const noexcept { return now_; }

  /// Runs `action` at `time`, or now if that has passed. Actions of the same time run in the order of the calls.
  void at(Duration time, Action action) { add(std::max(time, now_), made_++, std::move(action)); }

  /// Runs `action` at the current time, after all its other actions.
  void at_the_end_of_now(Action action) {
    constexpr std::uint64_t after_all_others = std::uint64_t{1} << 63;
    add(now_, after_all_others | made_++, std::move(action));
  }

  /// Runs the next action; false if there is none.
  bool step() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry next = heap_.back();
    heap_.pop_back();
    const Action action = std::exchange(actions_[next.action], nullptr);
    free_.push_back(next.action);
    now_ = Duration(next.time);
    ++steps_;
    action();
    return true;
  }

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

  void add(Duration time, std::uint64_t number, Action action) {
    std::size_t place = actions_.size();
    if (free_.empty()) {
      actions_.push_back(std::move(action));
    } else {
      place = free_.back();
      free_.pop_back();
      actions_[place] = std::move(action);
    }
    heap_.push_back({time.count(), number, place});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  Duration now_{};
  std::uint64_t steps_ = 0, made_ = 0;
  std::vector<Entry> heap_;
  std::vector<Action> actions_;
  std::vector<std::size_t> free_;
};

}  // namespace ranvier::runtime
