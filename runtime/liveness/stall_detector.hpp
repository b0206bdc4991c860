// Detects stalls in the table of pending work: a stream, file or host thread with unfinished work and no progress. Slow
// work progresses item by item; a kernel or file request that hangs does not. Loop thread only.
#pragma once

#include "runtime/liveness/pending_work.hpp"
#include "runtime/liveness/time_limits.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::runtime {

class StallDetector {
 public:
  /// Progress of an actor's work for messages: "in layer h.5"; empty: unknown.
  using Details = std::function<std::string(std::string_view part)>;

  /// Table and clock, both of the loop, must outlive this object. `details` may be null.
  StallDetector(const PendingWork& work, const Clock& clock, Details details)
      : work_(&work), clock_(&clock), details_(std::move(details)) {}

  /// Returns a description of work that made no progress for `timeout`: "optimizer: the step of h.3, stream 'compute',
  /// unfinished for 61.0 s, no progress there for 60.0 s". Call it every `period`.
  [[nodiscard]] std::optional<std::string> stuck(Duration period, Duration timeout);

  /// Counter that grows whenever local work progresses.
  [[nodiscard]] std::uint64_t progress();
  /// Unfinished work, oldest first, one line per item.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// The oldest unfinished item per stream, file or thread: "optimizer: the step of h.3, stream 'compute', for 0.3 s".
  /// Empty if there is none.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] std::vector<PendingWork::Entry> oldest_of_sources() const;
  [[nodiscard]] std::string text_of(const PendingWork::Entry& entry) const;
  [[nodiscard]] double age(const PendingWork::Entry& entry) const { return seconds(clock_->now() - entry.since); }

  const PendingWork* work_;
  const Clock* clock_;
  Details details_;
  std::map<const ProgressSource*, QuietTime> quiet_;        // sources with unfinished work
  std::map<const ProgressSource*, std::uint64_t> counted_;  // finished items that progress_ includes
  std::uint64_t progress_ = 0;
};

}  // namespace ranvier::runtime
