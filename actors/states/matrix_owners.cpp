#include "actors/states/matrix_owners.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <numeric>

namespace ranvier::actors {

double orthogonalization_flops(const models::ParameterSpec& parameter) {
  double flops = 0;
  for (const models::MatrixPart& matrix : parameter.matrices) {
    const auto elements = static_cast<double>(matrix.rows * matrix.columns);
    const auto size = static_cast<double>(std::min(matrix.rows, matrix.columns));
    flops += 20 * elements * size + 10 * size * size * size;
  }
  return flops;
}

std::vector<UnitMatrix> matrices_of(const models::UnitSpec& unit) {
  std::vector<UnitMatrix> matrices;
  for (std::size_t p = 0; p < unit.parameters.size() && unit.trained; ++p) {
    if (unit.parameters[p].matrices.empty()) continue;
    matrices.push_back({.parameter = p,
                        .range = {unit.offset(p), unit.parameters[p].elements()},
                        .cost = orthogonalization_flops(unit.parameters[p])});
  }
  return matrices;
}

std::vector<int> matrix_owners(std::span<const double> costs, int ranks) {
  expect(ranks > 0, "owners among {} ranks", ranks);
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(static_cast<std::size_t>(ranks));
  std::vector<int> owners(costs.size());
  for (const std::size_t item : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[item];
    owners[item] = static_cast<int>(least - loads.begin());
  }
  return owners;
}

}  // namespace ranvier::actors
