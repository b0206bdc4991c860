// A collective as calls of NCCL: data that follows from the collective, the topology and where its parts lie. Pure;
// any thread.
//
// NCCL's rank of a member is the piece that it owns, so pieces lie in the order of NCCL's ranks and a contiguous
// part is one call. A part in runs (Communicator::Part) has no such order: each run of a piece is then sent out by
// its owner or summed up at it, all of them in one group, which NCCL runs as one launch.
#pragma once

#include "collectives/communicator.hpp"
#include "collectives/plan_choice.hpp"
#include "collectives/script.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::collectives {

/// How NCCL is asked for a collective.
enum class NcclWay {
  own,           ///< by its own algorithms, which know the links
  hierarchical,  ///< inside the nodes and across them by communicators of their own (MiCS §3.3)
  plan,          ///< by sends and receives that follow a plan, with the bits of that plan's sums
};
/// For an algorithm's name as the flags have it: own for "auto".
[[nodiscard]] NcclWay nccl_way(std::string_view algorithm) noexcept;

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

/// Calls that go as one group, and what is added to what once they are done.
struct NcclStage {
  struct Sum {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t count = 0;

    friend bool operator==(const Sum&, const Sum&) = default;
  };

  NcclSpan span = NcclSpan::team;
  std::vector<NcclCall> calls;
  std::vector<Sum> sums = {};

  friend bool operator==(const NcclStage&, const NcclStage&) = default;
};

/// By NCCL's own algorithms: one stage, or none where there are no elements. `me` is the rank of the topology.
[[nodiscard]] std::vector<NcclStage> own_stages(Collective collective, const Topology& topology, int me,
                                                std::span<const Communicator::Part> parts, runtime::DType dtype);

/// Across the rows and inside them. As own_stages() where the topology has one row or rows of one.
[[nodiscard]] std::vector<NcclStage> hierarchical_stages(Collective collective, const Topology& topology, int me,
                                                         std::span<const Communicator::Part> parts,
                                                         runtime::DType dtype);

/// The part of this rank in every chunk of a plan, by part.
using PartScripts = std::vector<std::shared_ptr<const std::vector<Script>>>;

/// A plan's steps, `depth` chunks side by side in each group. What is to be added arrives at `staging`, which has
/// Executor::staging_bytes() of these scripts.
[[nodiscard]] std::vector<NcclStage> plan_stages(const Topology& topology,
                                                 std::span<const Communicator::Part> parts,
                                                 const PartScripts& scripts, int depth, std::byte* staging,
                                                 runtime::DType dtype);

/// The ranks of a span, as ranks of the topology in the order of NCCL's.
[[nodiscard]] std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span);

}  // namespace ranvier::collectives
