// Costs of work and a clock that a test states.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <cstdint>
#include <functional>
#include <utility>

namespace ranvier::tests {

/// Clock with a settable time.
class SetClock final : public runtime::Clock {
 public:
  [[nodiscard]] runtime::Duration now() const override { return time; }
  runtime::Duration time{};
};

/// Links take no time, and work needs no cores.
inline runtime::MachineProfile instant_machine() {
  constexpr runtime::Link no_time{.latency_seconds = 0, .bytes_per_second = 1e18, .node_bytes_per_second = 0};
  runtime::MachineProfile profile;
  profile.name = "test";
  profile.cores = 0;
  profile.links = {no_time, no_time};
  return profile;
}

/// Durations by a function that gives nanoseconds.
class CostsOf final : public runtime::CostModel {
 public:
  using Nanoseconds = std::function<double(const runtime::WorkCost&)>;

  explicit CostsOf(Nanoseconds nanoseconds) : nanoseconds_(std::move(nanoseconds)) {}
  runtime::Duration duration(const runtime::WorkCost& cost) const override {
    return runtime::Duration(static_cast<std::int64_t>(nanoseconds_(cost)));
  }

 private:
  Nanoseconds nanoseconds_;
};

}  // namespace ranvier::tests
