#include "actors/schedule/slice_balance.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

namespace ranvier::actors {

namespace {

using Slices = std::vector<models::LayerRange>;

/// Moves one layer from slice `from` to slice `to`, shifting the slices between them.
Slices moved(Slices slices, std::size_t from, std::size_t to) {
  for (std::size_t k = from; k < to; ++k) slices[k].end = --slices[k + 1].begin;
  for (std::size_t k = from; k > to; --k) slices[k - 1].end = ++slices[k].begin;
  return slices;
}

}  // namespace

std::vector<std::size_t> stages_of_layers(const std::vector<models::LayerRange>& slices, const SliceMap& map) {
  std::vector<std::size_t> stages;
  for (std::size_t k = 0; k < slices.size(); ++k)
    stages.resize(slices[k].end, static_cast<std::size_t>(map.stage_of(static_cast<int>(k))));
  return stages;
}

void check_slices(const SliceMap& map, std::size_t layers) {
  if (map.chunks < 1) fail(ErrorCode::usage, "`chunks_per_rank` is too small: {}; use 1 or more", map.chunks);
  if (map.chunks > 1 && map.stages == 1)
    fail(
        ErrorCode::usage,
        "`chunks_per_rank` {} has no effect with `g_inter` 1; remove `chunks_per_rank`, or use `g_inter` 2 or more",
        map.chunks);
  if (map.chunks > 1 && static_cast<std::size_t>(map.slices()) > layers)
    fail(ErrorCode::usage,
         "`g_inter` {} with `chunks_per_rank` {} needs {} model chunks, but the model has {} layers (embedding and "
         "head included); use fewer stages or chunks",
         map.stages, map.chunks, map.slices(), layers);
}

std::vector<models::LayerRange> balance_slices(const std::vector<double>& costs, const SliceMap& map,
                                               const std::vector<double>& slowness) {
  Slices slices = models::balance(costs, map.slices());
  if (map.chunks == 1) return slices;
  // Integers, so that sums of the same costs are equal.
  constexpr double parts = 1e12;
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<std::int64_t> before{0};
  for (const double cost : costs)
    before.push_back(before.back() + (total > 0 ? std::llround(cost / total * parts) : 0));
  const auto cost_of = [&](const Slices& of, std::size_t k) {
    const std::int64_t cost = before[of[k].end] - before[of[k].begin];
    if (slowness.empty()) return cost;
    const auto stage = static_cast<std::size_t>(map.stage_of(static_cast<int>(k)));
    return std::int64_t{std::llround(static_cast<double>(cost) * slowness[stage])};
  };
  const auto loads_of = [&](const Slices& of) {
    std::vector<std::int64_t> loads(static_cast<std::size_t>(map.stages), 0);
    for (std::size_t k = 0; k < of.size(); ++k)
      loads[static_cast<std::size_t>(map.stage_of(static_cast<int>(k)))] += cost_of(of, k);
    return loads;
  };
  // Loads of ranks in descending order, then the cost of the largest slice.
  const auto order_of = [&](const Slices& of) {
    std::vector<std::int64_t> order = loads_of(of);
    std::ranges::sort(order, std::greater<>());
    std::int64_t largest = 0;
    for (std::size_t k = 0; k < of.size(); ++k) largest = std::max(largest, cost_of(of, k));
    order.push_back(largest);
    return order;
  };
  for (auto best = order_of(slices);;) {
    const Slices now = slices;
    const auto loads = loads_of(now);
    const std::int64_t most = *std::ranges::max_element(loads);
    bool better = false;
    for (std::size_t from = 0; from < now.size(); ++from) {
      const bool gives = loads[static_cast<std::size_t>(map.stage_of(static_cast<int>(from)))] == most;
      if (!gives || now[from].end - now[from].begin == 1) continue;
      for (std::size_t to = 0; to < now.size(); ++to) {
        if (to == from) continue;
        Slices other = moved(now, from, to);
        auto order = order_of(other);
        if (order >= best) continue;
        best = std::move(order);
        slices = std::move(other);
        better = true;
      }
    }
    if (!better) return slices;
  }
}

}  // namespace ranvier::actors
