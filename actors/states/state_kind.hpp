// Kinds of state arrays of a unit.
#pragma once

#include "offload/tiers.hpp"

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

[[nodiscard]] constexpr const char* to_string(StateKind array) noexcept {
  switch (array) {
    case StateKind::parameters:
      return "parameters";
    case StateKind::secondary:
      return "parameters for backward passes";
    case StateKind::weights:
      return "weights";
    case StateKind::m:
      return "m";
    case StateKind::v:
      return "v";
    case StateKind::gradients:
      return "gradients";
  }
  return "?";
}

/// Rule of the optimizer's updates.
enum class UpdateRule { adamw, muon, sgd };

[[nodiscard]] constexpr const char* to_string(UpdateRule rule) noexcept {
  switch (rule) {
    case UpdateRule::adamw:
      return "AdamW";
    case UpdateRule::muon:
      return "Muon";
    case UpdateRule::sgd:
      return "SGD";
  }
  return "?";
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
