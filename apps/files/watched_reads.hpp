// Reads of initial weights and states under a StartupWatchdog, which gets the current read and its progress. Also
// injects the faults of RANVIER_FAULT into reads. Loop thread only.
#pragma once

#include "actors/checkpoint/state_source.hpp"
#include "apps/options/fault.hpp"
#include "models/core/unit.hpp"
#include "runtime/liveness/startup_watchdog.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Injected faults of this rank's reads.
class FaultyReads {
 public:
  /// Applies `fault` if it names this rank. `timeout`: duration of --timeout, the unit of a slow read.
  FaultyReads(const std::optional<ReadFault>& fault, int rank, runtime::Duration timeout);

  /// Called before each read of weights or states.
  void load(runtime::StartupWatchdog& watch);
  /// Called before each read of data.
  void data() const;

 private:
  std::optional<ReadFault> fault_;
  runtime::Duration timeout_;
  std::int64_t pieces_ = 0;
};

/// Wraps `source`. `where`: origin of the values, for messages. The watch outlives the result.
[[nodiscard]] models::UnitSource watched(models::UnitSource source, std::string where,
                                         runtime::StartupWatchdog& watch, FaultyReads faulty);

/// Wraps a StateSource. `source` and `watch` outlive it. `where`: origin of the values, for messages.
class WatchedSource final : public actors::StateSource {
 public:
  WatchedSource(actors::StateSource& source, std::string where, runtime::StartupWatchdog& watch,
                FaultyReads faulty);

  void will_read(std::span<const actors::StateRange> ranges) override { source_->will_read(ranges); }
  void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin, std::span<float> out) override;
  [[nodiscard]] std::vector<actors::StateScalar> scalars() const override { return source_->scalars(); }

 private:
  actors::StateSource* source_;
  std::string where_;
  runtime::StartupWatchdog* watch_;
  FaultyReads faulty_;
};

}  // namespace ranvier::apps
