// Reads of data, initial weights and states under a ThreadWatchdog, which gets the current read and its progress. Also
// injects the faults of RANVIER_FAULT into reads. Loop thread only.
#pragma once

#include "actors/checkpoint/state_source.hpp"
#include "apps/options/fault.hpp"
#include "models/core/unit.hpp"
#include "runtime/liveness/thread_watchdog.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class WatchedReads {
 public:
  /// `rank`: this one. `timeout`: duration of --timeout, the unit of a slow read. `watch` outlives all reads.
  WatchedReads(runtime::ThreadWatchdog& watch, int rank, runtime::Duration timeout);

  /// Called before a file of data is read.
  void data(const std::filesystem::path& file) const;
  /// Runs `read`, which reads `what` for the weights or states.
  void load(std::string what, const std::function<void()>& read);

 private:
  runtime::ThreadWatchdog* watch_;
  runtime::Duration timeout_;
  std::optional<ReadFault> fault_;  // none: another rank is faulty, or no rank
  std::int64_t pieces_ = 0;
};

/// Wraps `source`. `where`: origin of the values, for messages.
[[nodiscard]] models::UnitSource watched(models::UnitSource source, std::string where, WatchedReads reads);

/// Wraps a StateSource, which outlives it. `where`: origin of the values, for messages.
class WatchedSource final : public actors::StateSource {
 public:
  WatchedSource(actors::StateSource& source, std::string where, WatchedReads reads);

  void will_read(std::span<const actors::StateRange> ranges) override { source_->will_read(ranges); }
  void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin, std::span<float> out) override;
  [[nodiscard]] std::vector<actors::StateScalar> scalars() const override { return source_->scalars(); }

 private:
  actors::StateSource* source_;
  std::string where_;
  WatchedReads reads_;
};

}  // namespace ranvier::apps
