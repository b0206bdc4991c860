// A collective as calls of NCCL: data that follows from the collective, the topology and where its parts lie. Pure;
// any thread.
//
// NCCL's rank of a member is the piece that it owns, so pieces lie in the order of NCCL's ranks and a contiguous
// part is one call. A part in runs (Communicator::Operand) is packed for it where there is memory to pack to. Where
// there is none, each run of a piece is sent out by its owner or summed up at it, all of them in one group: as many
// calls as there are runs.
#pragma once

#include "collectives/communicator.hpp"
#include "collectives/plan_choice.hpp"
#include "collectives/rank_schedule.hpp"
#include "runtime/strided_layout.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::collectives {

/// How NCCL is asked for a collective.
enum class NcclMode {
  own,           ///< by its own algorithms, which know the links
  hierarchical,  ///< inside the nodes and across them by communicators of their own (MiCS §3.3)
  plan,          ///< by sends and receives that follow a plan, with the bits of that plan's sums
};
/// For an algorithm's name as the flags have it: own for "auto".
[[nodiscard]] NcclMode nccl_mode(std::string_view algorithm) noexcept;

struct NcclCall {
  enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, reduce, send, receive };
  Kind kind = Kind::all_gather;
  std::byte* from = nullptr;  ///< none of receive
  std::byte* to = nullptr;    ///< none of send
  std::size_t count = 0;      ///< elements, as NcclLibrary counts them
  int peer = 0;               ///< NCCL's rank of the root, or of the other end

  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

/// Which ranks of a team.
enum class NcclSpan {
  team,
  row,     ///< those that share this rank's row of the topology: a node, where nodes are alike
  column,  ///< those at its place in all rows
};
inline constexpr int nccl_spans = 3;

/// Calls that go as one group, what is packed for them, and what becomes of what came.
struct NcclStep {
  /// From array to array, one of which lies in runs or both are flat.
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
  std::vector<Move> packs = {};    ///< copied before the calls
  std::vector<Move> unpacks = {};  ///< copied once they are done
  std::vector<Move> sums = {};     ///< added then

  friend bool operator==(const NcclStep&, const NcclStep&) = default;
};

/// Where a stage may pack what lies in runs: memory for those of a row, and for those of a team or a column, as these
/// may be under way at a time.
struct NcclPacking {
  std::byte* row = nullptr;
  std::byte* others = nullptr;
  std::size_t bytes = 0;  ///< of each; what does not fit is not packed
};

/// By NCCL's own algorithms: one stage, or none where there are no elements. `me` is the rank of the topology.
[[nodiscard]] std::vector<NcclStep> own_stages(Collective collective, const Topology& topology, int me,
                                               std::span<const Communicator::Operand> parts, runtime::DType dtype,
                                               const NcclPacking& packing = {});

/// Across the rows and inside them. As own_stages() where the topology has one row or rows of one.
[[nodiscard]] std::vector<NcclStep> hierarchical_stages(Collective collective, const Topology& topology, int me,
                                                        std::span<const Communicator::Operand> parts,
                                                        runtime::DType dtype, const NcclPacking& packing = {});

/// The part of this rank in every chunk of a plan, by part.
using PartSchedules = std::vector<std::shared_ptr<const std::vector<RankSchedule>>>;

/// A plan's steps, `depth` chunks side by side in each group. What is to be added arrives at `staging`, which has
/// Executor::staging_bytes() of these scripts.
[[nodiscard]] std::vector<NcclStep> plan_stages(const Topology& topology,
                                                std::span<const Communicator::Operand> parts,
                                                const PartSchedules& schedules, int depth, std::byte* staging,
                                                runtime::DType dtype);

/// The ranks of a span, as ranks of the topology in the order of NCCL's.
[[nodiscard]] std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span);

}  // namespace ranvier::collectives
