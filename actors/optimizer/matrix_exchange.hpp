// Orthogonalizes the updates of matrices for Muon. Each matrix has an owner in the column, which computes it as a whole
// (states/matrix_owners.hpp). A rank holds a range of each update, as of its optimizer states:
//
//   ranks that share a copy of the states ─ their ranges ─→ owner ─ orthogonal matrix, by ranges ─→ all ranks
//
// Messages are in fp32; a rank copies its own elements instead of sending them. The owner computes in fp32 if the
// layers are in fp32, otherwise in bf16. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <cstddef>
#include <list>
#include <optional>
#include <vector>

namespace ranvier::actors {

class MatrixExchange {
 public:
  struct Plan {
    runtime::SlotPool::Plan updates;             ///< each for the optimizer's range of a unit, in fp32
    runtime::SlotPool::Plan matrices;            ///< each for the matrices of a unit that a rank owns
    std::optional<runtime::MemoryId> workspace;  ///< none: there are no matrices
  };
  /// `units`: number of units with updates at a time. The same memory on all ranks of a column.
  [[nodiscard]] static Plan plan(PlanContext& planner, std::size_t units);
  /// Maximum of messages in flight.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const ModelShare& share);
  /// Number of messages that this rank sends per step.
  [[nodiscard]] static std::size_t messages(const ModelShare& share);

  MatrixExchange(const RankContext& context, const ModelShare& share, const Plan& plan);

  /// Buffers for updates of units: the elements of UnitState::optimizer in fp32.
  [[nodiscard]] runtime::SlotPool& updates() noexcept { return updates_; }
  /// Replaces the matrices in a complete update by orthogonal ones. `update` must stay until `done`, which runs on the
  /// loop after this returned. All ranks call it for the same units in the same order.
  void orthogonalize(std::size_t unit, float* update, runtime::Handler done);

  [[nodiscard]] std::vector<Wait> waits() const;
  [[nodiscard]] std::vector<int> peers() const;

 private:
  /// Consecutive elements of a rank's update that belong to a matrix.
  struct Part {
    collectives::Range range;  ///< elements of the unit
    std::size_t offset = 0;    ///< element of the owner's buffer
  };
  /// Another rank of the column, and its common elements with this rank, by unit.
  struct Peer {
    int rank = 0;                            ///< in the transport
    bool shares = false;                     ///< it shares a copy of the optimizer states with this rank
    std::vector<std::vector<Part>> of_peer;  ///< elements of its matrices that this rank has
    std::vector<std::vector<Part>> of_mine;  ///< elements of this rank's matrices that it has
  };
  struct Work {
    std::size_t unit = 0;
    float* update = nullptr;
    runtime::SlotPool::Slot matrices;  // empty in a column of one rank, which computes in the update
    bool waits = false;                // for messages
    runtime::Duration since{};
    runtime::Handler done;
  };
  using WorkPosition = std::list<Work>::iterator;
  enum class Phase { to_owners, to_all };

  [[nodiscard]] static std::vector<Part> parts(const UnitState& unit, int owner, const collectives::Range& held);
  [[nodiscard]] static std::vector<Peer> peers_of(const ModelShare& share);
  void start(WorkPosition work);
  /// Sends the parts of all matrices in one phase. `done` runs when all messages of this rank have passed.
  void exchange(WorkPosition work, Phase phase, const runtime::Handler& done);
  void copy_own(const Work& work, Phase phase);
  void compute(WorkPosition work);
  void finish(WorkPosition work);

  const RankContext* context_;
  const UnitStates* states_;
  int me_;  ///< in the column
  std::vector<Peer> peers_;
  std::byte* workspace_;
  runtime::SlotPool updates_, matrices_;
  std::list<Work> work_;  // the first ones have started
};

}  // namespace ranvier::actors
