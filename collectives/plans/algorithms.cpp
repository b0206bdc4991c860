#include "collectives/plans/algorithms.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "collectives/plans/h_ring.hpp"
#include "collectives/plans/hierarchical.hpp"
#include "collectives/plans/ho_ring.hpp"
#include "collectives/plans/recursive.hpp"
#include "collectives/plans/ring.hpp"
#include "collectives/plans/torus.hpp"
#include "runtime/base/error.hpp"

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
  switch (collective) {
    case Collective::all_gather:
      return "all-gather";
    case Collective::reduce_scatter:
      return "reduce-scatter";
    case Collective::all_reduce:
      return "all-reduce";
  }
  return "?";
}

std::vector<Plan> Algorithm::plans(const Topology& topology, std::size_t elements, int chunks) const {
  std::vector<Plan> made;
  for (int chunk = 0; chunk < chunks; ++chunk) made.push_back(plan(topology, elements, chunks, chunk));
  return made;
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
  switch (collective) {
    case Collective::all_gather:
      return all_gathers;
    case Collective::reduce_scatter:
      return reduce_scatters;
    case Collective::all_reduce:
      return all_reduces;
  }
  return {};
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

const Algorithm& choose(Collective collective, const Topology& topology, std::size_t elements,
                        const Conditions& conditions) {
  std::vector<Plan> largest;  // plan of the last chunk per algorithm; no chunk is larger
  for (const Algorithm& each : algorithms(collective)) {
    largest.push_back(each.plan(topology, elements, conditions.chunks, conditions.chunks - 1));
  }
  return algorithms(collective)[choose(largest, topology, conditions)];
}

void check(Collective collective, const Plan& plan, int chunks, int chunk) {
  switch (collective) {
    case Collective::all_gather:
      return check_all_gather(plan, chunks, chunk);
    case Collective::reduce_scatter:
      return check_reduce_scatter(plan, chunks, chunk);
    case Collective::all_reduce:
      return check_all_reduce(plan, chunks, chunk);
  }
}

}  // namespace ranvier::collectives
