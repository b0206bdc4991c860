#include "runtime/simulation/virtual_time.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::runtime {

void VirtualTime::at(Duration time, Action action) { add(std::max(time, now_), made_++, std::move(action)); }

void VirtualTime::at_the_end_of_now(Action action) {
  constexpr std::uint64_t after_all_others = std::uint64_t{1} << 63;
  add(now_, after_all_others | made_++, std::move(action));
}

void VirtualTime::add(Duration time, std::uint64_t number, Action action) {
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

bool VirtualTime::step() {
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

}  // namespace ranvier::runtime
