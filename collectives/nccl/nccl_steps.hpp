// A collective as a list of NCCL calls: data computed from the collective, the topology and the location of its
// parts. Pure; any thread.
//
// A member's NCCL rank is the piece that it owns, so a contiguous part is one call. A strided part
// (Communicator::Operand) is packed if there is memory. Otherwise each run of a piece is broadcast or reduced by its
// owner, all in one group: one call per run.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/communicators/executor.hpp"
#include "collectives/nccl/nccl_library.hpp"
#include "collectives/plans/algorithms.hpp"
#include "runtime/base/dtype.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

/// Algorithm that NCCL runs.
enum class NcclMode {
  own,           ///< NCCL's own algorithms, which know the links
  hierarchical,  ///< separate communicators inside and across the nodes (MiCS §3.3)
  plan,          ///< sends and receives of a plan, with that plan's order of sums
};
/// Mode for an algorithm's name in the flags: own for "auto".
[[nodiscard]] NcclMode nccl_mode(std::string_view algorithm) noexcept;

/// By Collective, without all_to_all.
using NcclModes = std::array<NcclMode, 3>;
/// An all-to-all always is a plan: NCCL has sends and receives for it.
[[nodiscard]] constexpr NcclMode mode_of(const NcclModes& modes, Collective collective) noexcept {
  return collective == Collective::all_to_all ? NcclMode::plan : modes[static_cast<std::size_t>(collective)];
}
/// Whether all sums follow plans; otherwise NCCL chooses by the links of a column.
[[nodiscard]] bool sums_follow_plans(const NcclModes& modes) noexcept;

/// Ranks of a team that an operation spans.
enum class NcclSpan {
  team,
  row,     ///< ranks in this rank's row of the topology: a node, if nodes are uniform
  column,  ///< ranks at its position in all rows
};
inline constexpr int nccl_spans = 3;

/// Ranks of a span, as ranks of the topology in NCCL's order.
[[nodiscard]] std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span);

/// A collective as collectives of spans, in their order. With NcclMode::hierarchical they run inside and across the
/// rows, if the topology has several rows of several ranks. Otherwise there is one, over the team.
struct NcclPart {
  Collective collective;
  NcclSpan span;
};
[[nodiscard]] std::vector<NcclPart> nccl_parts(NcclMode mode, Collective collective, const Topology& topology);

/// NCCL calls of one group, at least one, with copies before and copies or sums after it.
struct NcclStep {
  /// Copy or sum between arrays, of which at most one is strided.
  struct Move {
    std::byte* to = nullptr;
    runtime::StridedLayout to_runs = {};
    const std::byte* from = nullptr;
    runtime::StridedLayout from_runs = {};
    std::size_t count = 0;  ///< elements
    bool adds = false;      ///< adds instead

    friend bool operator==(const Move&, const Move&) = default;
  };

  NcclSpan span = NcclSpan::team;
  std::vector<NcclCall> calls = {};
  std::vector<Move> before = {}, after = {};  ///< the calls

  friend bool operator==(const NcclStep&, const NcclStep&) = default;
};

/// Memory for packing strided data: one buffer for rows, one for teams or columns, because both may be in use at the
/// same time.
struct NcclPacking {
  std::byte* row = nullptr;
  std::byte* others = nullptr;
  std::size_t bytes = 0;  ///< bytes of each buffer; larger data is not packed
};

/// Steps of NCCL's own algorithms; none without elements. `me`: rank in the topology.
[[nodiscard]] std::vector<NcclStep> nccl_steps(NcclMode mode, Collective collective, const Topology& topology,
                                               int me, std::span<const Communicator::Operand> parts,
                                               runtime::DType dtype, const NcclPacking& packing = {});

/// Steps of a plan, with `depth` chunks per group. Data to be added arrives at `staging`.
[[nodiscard]] std::vector<NcclStep> plan_steps(const Topology& topology, const Executor::Operands& operands);

}  // namespace ranvier::collectives
