// Detects stalls of this rank's local work: a stream, file or host thread with unfinished work and no progress. Slow
// work progresses item by item; a kernel or file request that hangs does not. Loop thread only.
#pragma once

#include "runtime/loop/event_loop.hpp"

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
  /// Progress of an actor's work for messages: "in layer h.5"; empty: unknown.
  using Details = std::function<std::string(std::string_view part)>;

  /// `loop` must outlive this object. `details` may be null.
  StallDetector(const runtime::EventLoop& loop, Details details) : loop_(&loop), details_(std::move(details)) {}

  /// Returns a description of work that made no progress for `timeout`: "optimizer: the step of h.3, stream 'compute',
  /// unfinished for 61.0 s, no progress there for 60.0 s". Call it every `period`: time is counted in calls, so a
  /// process that was stopped and continued has not hung.
  [[nodiscard]] std::optional<std::string> stuck(runtime::Duration period, runtime::Duration timeout);

  /// Counter that grows whenever local work progresses.
  [[nodiscard]] std::uint64_t progress();
  /// Unfinished work, oldest first, one line per item.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// The oldest unfinished item per stream, file or thread: "optimizer: the step of h.3, stream 'compute', for 0.3 s".
  /// Empty if there is none.
  [[nodiscard]] std::string describe() const;

 private:
  struct Seen {
    std::uint64_t done = 0;     ///< finished items at the last call
    runtime::Duration quiet{};  ///< time since `done` changed
  };
  [[nodiscard]] std::string text_of(const runtime::PendingWork::Entry& entry) const;

  const runtime::EventLoop* loop_;
  Details details_;
  std::map<const runtime::ProgressSource*, Seen> places_;            // with unfinished work
  std::map<const runtime::ProgressSource*, std::uint64_t> counted_;  // finished items that progress_ includes
  std::uint64_t progress_ = 0;
};

}  // namespace ranvier::actors
