// Finds silent data corruption: compares hashes of all replicated states (replica_sets.hpp) between steps, after the
// last update is stored. Ranks exchange hashes only. Loop thread only.
//
//   states → staging (pinned, two segments) → hash → per replica set: the first rank's hash to all ranks
//     → sets that differ: the first rank's hashes of segments → segments that differ: hashes of all ranks
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/consensus.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/replicas/replica_sets.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/device/slot_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class Optimizer;

/// Result of a check; `damage` is the same on all ranks.
struct ReplicaReport {
  std::int64_t step = 0;
  std::size_t bytes = 0;                ///< bytes of states that this rank compared
  double seconds = 0;                   ///< duration on this rank
  std::vector<ReplicaMismatch> damage;  ///< the first mismatches; empty: all replicas are equal
};

class ReplicaCheck final : public Actor {
 public:
  struct Plan {
    std::vector<ReplicaSet> sets;
    runtime::SlotPool::Plan staging;  ///< no slots: this rank has no replicated states
    std::size_t piece_bytes = 0;
    /// This rank's replicas.
    struct Copy {
      std::size_t set = 0;
      std::size_t unit = 0;  ///< index in the stage
    };
    std::vector<Copy> copies;
  };
  /// All ranks plan the same sets.
  [[nodiscard]] static Plan plan(PlanContext& planner, std::vector<ReplicaSet> sets, int rank);

  ReplicaCheck(const RankContext& context, const ModelShare& share, const Plan& plan, Optimizer& optimizer,
               Consensus& consensus);

  [[nodiscard]] const char* name() const noexcept override { return "replica check"; }
  [[nodiscard]] std::string details() const override;

  /// Starts a check; call it on all ranks. `done` runs on the loop.
  void run(std::int64_t step, std::function<void(const ReplicaReport&)> done);

  /// For tests: flips a bit of the first replicated element of this array.
  void damage(StateKind array, runtime::Handler done);

 private:
  /// A segment in the staging memory.
  struct Transfer {
    std::size_t copy = 0;
    std::size_t number = 0;
    collectives::Range range;
  };

  [[nodiscard]] const ReplicaSet& set_of(std::size_t copy) const { return plan_.sets[plan_.copies[copy].set]; }
  [[nodiscard]] std::size_t pieces_of(const ReplicaSet& set) const;
  [[nodiscard]] collectives::Range piece_of(const ReplicaSet& set, std::size_t number) const;
  void read_next();
  void hash(const Transfer& piece, const runtime::SlotPool::Slot& slot);
  /// Zeroes the padding between parameters, which is not part of the state.
  void clear_gaps(const Transfer& piece, std::span<std::byte> values) const;
  /// A replica set, or one of its segments.
  struct Compared {
    std::size_t set = 0;
    std::optional<std::size_t> piece;
  };
  /// Returns nothing if this rank has no replica.
  [[nodiscard]] std::optional<std::uint64_t> hash_here(const Compared& item) const;
  /// Calls `then` on all ranks with the first `most` of `items` whose replicas differ.
  void find_differing(std::vector<Compared> items, std::size_t most,
                      std::function<void(std::vector<Compared>)> then);
  void compare();
  void find_ranks(std::vector<Compared> pieces);
  void finish();

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  Optimizer* optimizer_;
  Consensus* consensus_;
  std::unique_ptr<runtime::Stream> hashes_on_;

  std::function<void(const ReplicaReport&)> done_;
  ReplicaReport report_;
  runtime::Duration began_{};
  std::size_t next_copy_ = 0, next_piece_ = 0;
  bool reading_ = false;
  runtime::SlotPool slots_;
  std::size_t missing_ = 0;                         // segments without a hash
  std::vector<std::vector<std::uint64_t>> hashes_;  // by replica and segment
  std::vector<std::optional<std::size_t>> copy_of_set_;
  std::vector<double> agreed_;
};

}  // namespace ranvier::actors
