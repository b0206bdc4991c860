// What a training begins with, read under watch: piece by piece it is known what comes now, and that it gets on. It
// also fails here as RANVIER_FAULT asks for. Loop thread only.
#pragma once

#include "actors/checkpoint/state_source.hpp"
#include "apps/train/options/fault.hpp"
#include "models/unit_source.hpp"
#include "runtime/startup_watchdog.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// What goes wrong with reads of this rank, on purpose.
class FaultyReads {
 public:
  /// As `fault` says, if it is of this rank.
  FaultyReads(const std::optional<ReadFault>& fault, int rank, runtime::Duration timeout);

  /// Before each piece of weights or states.
  void load(runtime::StartupWatchdog& watch);
  /// Before each piece of data.
  void data() const;

 private:
  std::optional<ReadFault> fault_;
  runtime::Duration timeout_;
  std::int64_t pieces_ = 0;
};

/// `source`, whose values come from `where`. The watch outlives it.
[[nodiscard]] models::UnitSource watched(models::UnitSource source, std::string where,
                                         runtime::StartupWatchdog& watch, FaultyReads faulty);

/// Likewise; `source` outlives it.
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
