// Table of the algorithms, by name, for options and for choosing the cheapest. Pure; any thread.
#pragma once

#include "collectives/plans/cost.hpp"
#include "collectives/plans/plan.hpp"
#include "collectives/plans/rank_schedule.hpp"
#include "collectives/plans/topology.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

enum class Collective { all_gather, reduce_scatter, all_reduce };
[[nodiscard]] const char* to_string(Collective collective) noexcept;  ///< "all-gather"

struct Algorithm {
  std::string_view name;  ///< "ho-ring"
  Plan (*make)(const Topology&, std::size_t elements, int chunks, int chunk, int only);

  [[nodiscard]] Plan plan(const Topology& topology, std::size_t elements, int chunks, int chunk,
                          int only = every_rank) const {
    return make(topology, elements, chunks, chunk, only);
  }
  /// Plans of all chunks.
  [[nodiscard]] std::vector<Plan> plans(const Topology& topology, std::size_t elements, int chunks) const;
  /// Steps of `rank` in each plan, computed without the other ranks: O(P) time and memory for most algorithms.
  [[nodiscard]] std::vector<RankSchedule> schedules(const Topology& topology, std::size_t elements, int chunks,
                                                    int rank) const;
};

/// Algorithms of a collective, the simplest first.
[[nodiscard]] std::span<const Algorithm> algorithms(Collective collective);

/// Throws ErrorCode::usage, with the field (`all_gather`) and all names, if the name is unknown.
[[nodiscard]] const Algorithm& algorithm(Collective collective, std::string_view name);

/// Cheapest algorithm for `conditions.chunks` chunks of `elements`; the same on all ranks with the same links.
[[nodiscard]] const Algorithm& choose(Collective collective, const Topology& topology, std::size_t elements,
                                      const Conditions& conditions);

// Checks the plan of a collective, see plan.hpp.
void check(Collective collective, const Plan& plan, int chunks = 1, int chunk = 0);

}  // namespace ranvier::collectives
