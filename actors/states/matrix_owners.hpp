// Matrices that Muon updates as a whole, and the ranks that orthogonalize them. Pure data; any thread.
#pragma once

#include "collectives/plans/plan.hpp"
#include "models/core/unit.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

/// A parameter whose matrices Muon updates as a whole. One rank owns all of them, such as queries, keys and values.
struct UnitMatrix {
  std::size_t parameter = 0;  ///< index in UnitSpec::parameters
  collectives::Range range;   ///< elements of the unit
  double cost = 0;            ///< FLOPs of its orthogonalization
  int owner = 0;              ///< rank of the column that orthogonalizes it

  friend bool operator==(const UnitMatrix&, const UnitMatrix&) = default;
};

/// FLOPs to orthogonalize all matrices of a parameter (models/ops/orthogonalize.hpp). 0 if it has none.
[[nodiscard]] double orthogonalization_flops(const models::ParameterSpec& parameter);

/// Matrices of a unit, without owners; none if it is frozen.
[[nodiscard]] std::vector<UnitMatrix> matrices_of(const models::UnitSpec& unit);

/// Owner of each item, a rank 0 … ranks-1: the item with the highest cost goes to the rank with the lowest sum of
/// costs, and so on. The most loaded rank has at most 4/3 of the lowest possible load (Graham 1969). Ties go to the
/// first item and the first rank, so that all ranks compute the same owners.
[[nodiscard]] std::vector<int> matrix_owners(std::span<const double> costs, int ranks);

/// Sets the owners of the matrices of a stage's `units`, which have a member `matrices`.
void assign_owners(auto& units, int ranks) {
  std::vector<double> costs;
  for (const auto& unit : units) {
    for (const UnitMatrix& matrix : unit.matrices) costs.push_back(matrix.cost);
  }
  const std::vector<int> owners = matrix_owners(costs, ranks);
  auto owner = owners.begin();
  for (auto& unit : units) {
    for (UnitMatrix& matrix : unit.matrices) matrix.owner = *owner++;
  }
}

}  // namespace ranvier::actors
