// Kinds of state arrays of a unit.
#pragma once

namespace ranvier::actors {

enum class StateKind {
  parameters,  ///< as layers read them
  weights,     ///< separate master weights
  m,           ///< AdamW's moments
  v,
};

[[nodiscard]] constexpr const char* to_string(StateKind array) noexcept {
  switch (array) {
    case StateKind::parameters:
      return "parameters";
    case StateKind::weights:
      return "weights";
    case StateKind::m:
      return "m";
    case StateKind::v:
      return "v";
  }
  return "?";
}

}  // namespace ranvier::actors
