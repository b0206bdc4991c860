#include "collectives/plans/algorithms.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "collectives/plans/direct.hpp"
#include "collectives/plans/recursive.hpp"
#include "collectives/plans/ring.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

namespace ranvier::collectives {

namespace {

constexpr std::array<Algorithm, 5> algorithms_for(Collective collective) {
  return {{{"ring", collective, ring_gather},
           {"recursive", collective, recursive_gather},
           {"hierarchical", collective, hierarchical_gather},
           {collective == Collective::all_reduce ? "torus" : "h-ring", collective, h_ring_gather},
           {"ho-ring", collective, ho_ring_gather}}};
}

/// Turns an all-gather that runs backwards into a reduce-scatter. No step of the gather may send a range twice.
void mirror(Plan& plan) {
  for (auto& steps : plan.ranks) {
    std::reverse(steps.begin(), steps.end());
    for (Step& step : steps) {
      std::reverse(step.begin(), step.end());
      for (Operation& operation : step) {
        operation.action = operation.action == Action::send ? Action::receive_add : Action::send;
      }
    }
  }
}

}  // namespace

const char* to_string(Collective collective) noexcept {
  return runtime::enum_name<Collective::all_to_all>(collective,
                                                    {"all-gather", "reduce-scatter", "all-reduce", "all-to-all"});
}

Plan Algorithm::plan(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) const {
  const int ranks = topology.ranks();
  const std::string what = fmt::format("{} {}", name, to_string(collective));
  expect(topology.inner > 0 && topology.outer > 0, "{} of {} rows of {} ranks", what, topology.outer,
         topology.inner);
  expect(topology.node_of.size() == static_cast<std::size_t>(ranks),
         "{}: the nodes of {} ranks are known, not of {}", what, topology.node_of.size(), ranks);
  Plan plan{fmt::format("{} of {} × {} ranks, {} elements, chunk {} of {}", what, topology.outer, topology.inner,
                        elements, chunk, chunks),
            elements,
            std::vector<std::vector<Step>>(ranks),
            {}};
  if (topology.inner > 1 && topology.outer > 1) {
    for (int rank = 0; rank < ranks; ++rank) plan.pieces.push_back(topology.piece(rank));
  }
  GatherShape shape{.chunks = chunks, .chunk = chunk, .only = only, .backwards = true};
  if (collective == Collective::reduce_scatter || collective == Collective::all_reduce) {
    gather(plan, topology, shape);
    mirror(plan);
  }
  shape.backwards = false;
  if (collective != Collective::reduce_scatter) gather(plan, topology, shape);
  return plan;
}

std::vector<RankSchedule> Algorithm::schedules(const Topology& topology, std::size_t elements, int chunks,
                                               int rank) const {
  // Slices of a piece have one of two lengths. Chunks of the same length have the same plan, at another offset in every
  // piece.
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> known;  // by length: start offset of the slice, index
  std::vector<RankSchedule> made;
  const std::size_t sliced = collective == Collective::all_to_all ? elements / 2 : elements;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Range slice = chunk_of_piece(sliced, topology.ranks(), 0, chunks, chunk);
    const auto [found, is_new] = known.try_emplace(slice.count, slice.begin, made.size());
    const auto& [begin, index] = found->second;
    made.push_back(is_new ? schedule_of(plan(topology, elements, chunks, chunk, rank), rank)
                          : shifted(made[index], slice.begin - begin));
  }
  return made;
}

std::span<const Algorithm> algorithms(Collective collective) {
  static constexpr std::array exchanges = {Algorithm{"direct", Collective::all_to_all, direct_exchange}};
  if (collective == Collective::all_to_all) return exchanges;
  static constexpr std::array all = {algorithms_for(Collective::all_gather),
                                     algorithms_for(Collective::reduce_scatter),
                                     algorithms_for(Collective::all_reduce)};
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
  switch (collective) {
    case Collective::all_gather:
      return algorithm(collective, all_gather);
    case Collective::reduce_scatter:
      return algorithm(collective, reduce_scatter);
    case Collective::all_reduce:
      return algorithm(collective, all_reduce);
    case Collective::all_to_all:
      break;
  }
  return algorithms(collective).front();
}

int PlanChoice::chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const {
  expect(ranks > 0 && chunk_bytes > 0, "invalid sizes: {} ranks, chunks of {} bytes", ranks, chunk_bytes);
  const std::size_t elements = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  const std::size_t piece_bytes = elements * size_of(dtype) / static_cast<std::size_t>(ranks);
  return static_cast<int>(std::max<std::size_t>(1, runtime::ceil_divide(piece_bytes, chunk_bytes)));
}

}  // namespace ranvier::collectives
