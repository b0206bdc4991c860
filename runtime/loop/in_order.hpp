// Runs handlers in the order of their numbers, each as soon as all lower numbers have run: work that finishes in any
// order continues in one. Loop thread only.
//
//   read(chunk, [=, this] { sends_.run(chunk, [=, this] { send(chunk); }); });
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>

namespace ranvier::runtime {

class InOrder {
 public:
  /// Numbers start at 0, and after `period` numbers again.
  explicit InOrder(std::uint64_t period = std::numeric_limits<std::uint64_t>::max()) noexcept : period_(period) {}

  /// Runs `handler` during this call, or in the call with the last lower number. Each number once per period.
  void run(std::uint64_t number, Handler handler) {
    expect(number < period_ && waiting_.emplace(number, std::move(handler)).second,
           "handler {} is out of order: {} is next, period {}", number, next_, period_);
    for (auto next = waiting_.find(next_); next != waiting_.end(); next = waiting_.find(next_)) {
      const Handler due = std::move(waiting_.extract(next).mapped());
      if (++next_ == period_) next_ = 0;
      due();
    }
  }

 private:
  std::uint64_t period_, next_ = 0;
  std::unordered_map<std::uint64_t, Handler> waiting_;
};

}  // namespace ranvier::runtime
