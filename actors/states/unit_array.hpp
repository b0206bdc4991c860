// What a rank holds of a unit from step to step, by name.
#pragma once

namespace ranvier::actors {

enum class UnitArray {
  parameters,  ///< as layers read them
  weights,     ///< the master copy, where that is another one
  m,           ///< AdamW's moments
  v,
};

[[nodiscard]] constexpr const char* to_string(UnitArray array) noexcept {
  switch (array) {
    case UnitArray::parameters:
      return "parameters";
    case UnitArray::weights:
      return "weights";
    case UnitArray::m:
      return "m";
    case UnitArray::v:
      return "v";
  }
  return "?";
}

}  // namespace ranvier::actors
