// Table of the algorithms, by name. Pure; any thread.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/rank_schedule.hpp"
#include "collectives/plans/topology.hpp"
#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

/// Buffers of an all-to-all have two pieces per rank (direct.hpp).
enum class Collective { all_gather, reduce_scatter, all_reduce, all_to_all };
[[nodiscard]] const char* to_string(Collective collective) noexcept;  ///< "all-gather"

struct GatherShape;

struct Algorithm {
  std::string_view name;  ///< "ho-ring"
  Collective collective;
  /// Appends the steps of an all-gather, from which the collective is made (plan_builders.hpp), or an all-to-all.
  void (*gather)(Plan& plan, const Topology& topology, const GatherShape& shape);

  [[nodiscard]] Plan plan(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                          int only = every_rank) const;
  /// Steps of `rank` in each plan, computed without the other ranks: O(P) time and memory for most algorithms.
  [[nodiscard]] std::vector<RankSchedule> schedules(const Topology& topology, std::size_t elements, int chunks,
                                                    int rank) const;
};

/// Algorithms of a collective, the simplest first.
[[nodiscard]] std::span<const Algorithm> algorithms(Collective collective);

/// Throws ErrorCode::usage, with the field (`all_gather`) and all names, if the name is unknown.
[[nodiscard]] const Algorithm& algorithm(Collective collective, std::string_view name);

/// Names of algorithms ("auto" is resolved before), and chunking.
struct PlanChoice {
  std::string all_gather = "ring", reduce_scatter = "ring", all_reduce = "ring";
  std::size_t chunk_bytes = 1 << 20;  ///< maximum bytes of all parts' pieces per chunk
  int depth = 4;                      ///< chunks in flight per operation

  [[nodiscard]] const Algorithm& algorithm_of(Collective collective) const;
  /// Number of chunks of an operation with these parts, at least one.
  [[nodiscard]] int chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const;
};

/// Shape of an operation, for planning.
struct OperationShape {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> parts;  ///< elements of each part
  runtime::DType dtype = runtime::DType::f32;
  std::vector<std::size_t> runs = {};  ///< run of each part, as in Communicator::Operand; empty: all are contiguous
};

}  // namespace ranvier::collectives
