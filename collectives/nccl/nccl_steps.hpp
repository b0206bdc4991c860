// A collective as a list of NCCL calls: data computed from the collective, the topology and the location of its
// parts. Pure; any thread.
//
// A member's NCCL rank is the piece that it owns, so a contiguous part is one call. A strided part
// (Communicator::Operand) is packed if there is memory. Otherwise each run of a piece is broadcast or reduced by its
// owner, all in one group: one call per run.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/nccl/nccl_library.hpp"
#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/rank_schedule.hpp"
#include "runtime/base/dtype.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
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

using NcclModes = std::array<NcclMode, 3>;  ///< by Collective
/// Whether all sums follow plans; otherwise NCCL chooses by the links of a column.
[[nodiscard]] bool sums_follow_plans(const NcclModes& modes) noexcept;

/// Ranks of a team that an operation spans.
enum class NcclSpan {
  team,
  row,     ///< ranks in this rank's row of the topology: a node, if nodes are uniform
  column,  ///< ranks at its position in all rows
};
inline constexpr int nccl_spans = 3;

/// A collective as collectives inside and across the rows, in their order.
struct HierarchicalPart {
  Collective collective;
  NcclSpan span;
};
[[nodiscard]] std::vector<HierarchicalPart> hierarchical_parts(Collective collective);

/// NCCL calls of one group, with copies before and copies or sums after it.
struct NcclStep {
  /// Copy between arrays, of which at most one is strided.
  struct Move {
    std::byte* to = nullptr;
    runtime::StridedLayout to_runs = {};
    const std::byte* from = nullptr;
    runtime::StridedLayout from_runs = {};
    std::size_t count = 0;  ///< elements

    friend bool operator==(const Move& a, const Move& b) noexcept {
      const auto same = [](const runtime::StridedLayout& x, const runtime::StridedLayout& y) {
        return x.run == y.run && x.stride == y.stride && x.first == y.first;
      };
      return a.to == b.to && a.from == b.from && a.count == b.count && same(a.to_runs, b.to_runs) &&
             same(a.from_runs, b.from_runs);
    }
  };

  NcclSpan span = NcclSpan::team;
  std::vector<NcclCall> calls = {};
  std::vector<Move> packs = {};    ///< copies before the calls
  std::vector<Move> unpacks = {};  ///< copies after the calls
  std::vector<Move> sums = {};     ///< additions after the calls

  friend bool operator==(const NcclStep&, const NcclStep&) = default;
};

/// Memory for packing strided data: one buffer for rows, one for teams or columns, because both may be in use at the
/// same time.
struct NcclPacking {
  std::byte* row = nullptr;
  std::byte* others = nullptr;
  std::size_t bytes = 0;  ///< bytes of each buffer; larger data is not packed
};

/// NCCL's own algorithms: one step, or none without elements. `me`: rank in the topology.
[[nodiscard]] std::vector<NcclStep> own_stages(Collective collective, const Topology& topology, int me,
                                               std::span<const Communicator::Operand> parts, runtime::DType dtype,
                                               const NcclPacking& packing = {});

/// Across the rows and inside them. Like own_stages() if the topology has one row or rows of one rank.
[[nodiscard]] std::vector<NcclStep> hierarchical_stages(Collective collective, const Topology& topology, int me,
                                                        std::span<const Communicator::Operand> parts,
                                                        runtime::DType dtype, const NcclPacking& packing = {});

/// This rank's schedules for every chunk of a plan, by part.
using PartSchedules = std::vector<std::shared_ptr<const std::vector<RankSchedule>>>;

/// Steps of a plan, with `depth` chunks per group. Data to be added arrives at `staging`, with
/// Executor::staging_bytes() of these schedules.
[[nodiscard]] std::vector<NcclStep> plan_stages(const Topology& topology,
                                                std::span<const Communicator::Operand> parts,
                                                const PartSchedules& schedules, int depth, std::byte* staging,
                                                runtime::DType dtype);

/// Ranks of a span, as ranks of the topology in NCCL's order.
[[nodiscard]] std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span);

}  // namespace ranvier::collectives
