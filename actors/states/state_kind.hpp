// Kinds of state arrays of a unit.
#pragma once

#include "offload/tiers.hpp"
#include "runtime/base/names.hpp"

#include <array>
#include <cstddef>

namespace ranvier::actors {

enum class StateKind {
  parameters,  ///< as layers read them
  secondary,   ///< ZeRO++: second copy of the parameters, for backward passes
  weights,     ///< separate master weights
  m,           ///< moments: AdamW's, or SGD's and Muon's momentum
  v,
  gradients,  ///< one array per tied use
};

[[nodiscard]] constexpr const char* to_string(StateKind kind) noexcept {
  return runtime::enum_name<StateKind::gradients>(
      kind, {"parameters", "parameters for backward passes", "weights", "m", "v", "gradients"});
}

/// Rule of the optimizer's updates.
enum class UpdateRule { adamw, muon, sgd };

[[nodiscard]] constexpr const char* to_string(UpdateRule rule) noexcept {
  return runtime::enum_name<UpdateRule::sgd>(rule, {"AdamW", "Muon", "SGD"});
}

/// All states that an optimizer may have of a unit, in the order of records and checkpoints. A rule has the first ones
/// (TierOptions::arrays_of).
inline constexpr std::array optimizer_states = {StateKind::weights, StateKind::m, StateKind::v};

/// Array of a unit in a checkpoint; a frozen unit's weights are its parameters.
[[nodiscard]] constexpr StateKind kind_of(bool trained, std::size_t array) {
  return trained ? optimizer_states[array] : StateKind::parameters;
}

/// Location of elements of a state: device memory, host memory or files.
struct StateLocation {
  const std::byte* memory = nullptr;  ///< null: in files
  offload::TierRegion region;         ///< region in files; `offset` is in bytes from its start
  std::size_t offset = 0;
};

}  // namespace ranvier::actors
