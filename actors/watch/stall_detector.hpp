// Whether anything moves in each place where work of this rank's own is under way: on a stream, in files, on the
// host's threads. Slow work moves, piece by piece; a kernel that does not end, or a request that does not come
// back, does not. Loop thread only.
#pragma once

#include "runtime/event_loop.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::actors {

class StallDetector {
 public:
  /// How far the work of a part has come, for people: "in layer h.5"; empty: nothing is known.
  using Details = std::function<std::string(std::string_view part)>;

  /// The loop outlives it. `details` may be null.
  StallDetector(const runtime::EventLoop& loop, Details details) : loop_(&loop), details_(std::move(details)) {}

  /// To be called every `period`: time is counted in calls, so that a process that was stopped and continued has not
  /// hung. Once nothing has moved for `timeout` where something is under way, says what: "optimizer: the step of h.3 on
  /// stream 'compute' has not ended for 61.0 s, and nothing has moved there for 60.0 s".
  [[nodiscard]] std::optional<std::string> stuck(runtime::Duration period, runtime::Duration timeout);

  /// Counts on whenever something of this rank's own moved.
  [[nodiscard]] std::uint64_t progress();
  /// All that is under way, the oldest first, a line each.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// What is under way, the oldest of each place: "optimizer: the step of h.3 on stream 'compute' for 0.3 s"; empty:
  /// nothing.
  [[nodiscard]] std::string describe() const;

 private:
  struct Seen {
    std::uint64_t done = 0;     ///< there, at the last call
    runtime::Duration quiet{};  ///< since that changed
  };
  [[nodiscard]] std::string text_of(const runtime::PendingWork::Entry& entry) const;

  const runtime::EventLoop* loop_;
  Details details_;
  std::map<const runtime::ProgressSource*, Seen> places_;            // with something under way
  std::map<const runtime::ProgressSource*, std::uint64_t> counted_;  // done there as it is part of …
  std::uint64_t progress_ = 0;                                       // … this
};

}  // namespace ranvier::actors
