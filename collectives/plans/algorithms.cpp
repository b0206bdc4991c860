#include "collectives/plans/algorithms.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "collectives/plans/recursive.hpp"
#include "collectives/plans/ring.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

namespace ranvier::collectives {

namespace {

constexpr Algorithm all_gathers[] = {{"ring", ring_all_gather},
                                     {"recursive", recursive_all_gather},
                                     {"hierarchical", hierarchical_all_gather},
                                     {"h-ring", h_ring_all_gather},
                                     {"ho-ring", ho_ring_all_gather}};
constexpr Algorithm reduce_scatters[] = {{"ring", ring_reduce_scatter},
                                         {"recursive", recursive_reduce_scatter},
                                         {"hierarchical", hierarchical_reduce_scatter},
                                         {"h-ring", h_ring_reduce_scatter},
                                         {"ho-ring", ho_ring_reduce_scatter}};
constexpr Algorithm all_reduces[] = {{"ring", ring_all_reduce},
                                     {"recursive", recursive_all_reduce},
                                     {"hierarchical", hierarchical_all_reduce},
                                     {"torus", torus_all_reduce},
                                     {"ho-ring", ho_ring_all_reduce}};

}  // namespace

const char* to_string(Collective collective) noexcept {
  return runtime::enum_name<Collective::all_reduce>(collective, {"all-gather", "reduce-scatter", "all-reduce"});
}

std::vector<RankSchedule> Algorithm::schedules(const Topology& topology, std::size_t elements, int chunks,
                                               int rank) const {
  // Slices of a piece have one of two lengths. Chunks of the same length have the same plan, at another offset in every
  // piece.
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> known;  // by length: start offset of the slice, index
  std::vector<RankSchedule> made;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Range slice = chunk_of_piece(elements, topology.ranks(), 0, chunks, chunk);
    const auto [found, is_new] = known.try_emplace(slice.count, slice.begin, made.size());
    const auto& [begin, index] = found->second;
    made.push_back(is_new ? schedule_of(plan(topology, elements, chunks, chunk, rank), rank)
                          : shifted(made[index], slice.begin - begin));
  }
  return made;
}

std::span<const Algorithm> algorithms(Collective collective) {
  constexpr std::span<const Algorithm> all[] = {all_gathers, reduce_scatters, all_reduces};
  return all[static_cast<std::size_t>(collective)];
}

const Algorithm& algorithm(Collective collective, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm& each : algorithms(collective)) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  std::string field(to_string(collective));
  std::replace(field.begin(), field.end(), '-', '_');
  fail(ErrorCode::usage, "`{}`: unknown algorithm: {}; use {}", field, name, fmt::join(names, ", "));
}

const Algorithm& PlanChoice::algorithm_of(Collective collective) const {
  return algorithm(collective, collective == Collective::all_gather       ? all_gather
                               : collective == Collective::reduce_scatter ? reduce_scatter
                                                                          : all_reduce);
}

int PlanChoice::chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const {
  expect(ranks > 0 && chunk_bytes > 0, "invalid sizes: {} ranks, chunks of {} bytes", ranks, chunk_bytes);
  const std::size_t elements = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  const std::size_t piece_bytes = elements * size_of(dtype) / static_cast<std::size_t>(ranks);
  return static_cast<int>(std::max<std::size_t>(1, runtime::ceil_divide(piece_bytes, chunk_bytes)));
}

}  // namespace ranvier::collectives
