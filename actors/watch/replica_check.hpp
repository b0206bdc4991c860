// Looks for damage that nobody reported (a bit that flipped in memory, a processor that computes wrongly): hashes all
// states of which there are several copies (replica_sets.hpp), and compares the hashes.
//
//   states → staging (pinned, two pieces) → hash → for each set of copies, the first rank's hash to all ranks
//     → for sets that differ, the first rank's hashes of pieces → for pieces that differ, the hash of every rank
//
// No state passes between ranks, and no more of one is anywhere than in its place. Between steps, when all of the last
// one is stored. Loop thread only.
#pragma once

#include "actors/rank/consensus.hpp"
#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/watch/replica_sets.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class Optimizer;
class ParameterRecords;

/// What all ranks know after a check.
struct ReplicaReport {
  std::int64_t step = 0;
  std::size_t bytes = 0;                ///< of states that this rank compared with others'
  double seconds = 0;                   ///< of this rank
  std::vector<ReplicaMismatch> damage;  ///< the first few; empty: all copies are equal
};

class ReplicaCheck final : public Actor {
 public:
  struct Plan {
    std::vector<ReplicaSet> sets;
    std::optional<runtime::MemoryId> staging;  ///< none: this rank has no copy of what others have
    std::size_t piece_bytes = 0;
    /// This rank's copies.
    struct Copy {
      std::size_t set = 0;
      std::size_t unit = 0;  ///< of the stage
    };
    std::vector<Copy> copies;
  };
  /// All ranks plan the same sets.
  [[nodiscard]] static Plan plan(PlanContext& planner, std::vector<ReplicaSet> sets, int rank);

  /// `records` is null where parameters live on the device.
  ReplicaCheck(const RankContext& context, const ModelShare& share, const Plan& plan, Optimizer& optimizer,
               ParameterRecords* records, Consensus& consensus);
  ~ReplicaCheck() override;

  [[nodiscard]] const char* name() const noexcept override { return "replica check"; }
  [[nodiscard]] std::string details() const override;

  /// All ranks at a time; `done` runs on the loop.
  void run(std::int64_t step, std::function<void(const ReplicaReport&)> done);

  /// Test only: flips a bit of the first element that this rank has of this array, and others too.
  void damage(StateKind array, runtime::Handler done);

 private:
  /// A piece on its way through a slot of the staging memory.
  struct Transfer {
    std::size_t copy = 0;
    std::size_t number = 0;
    collectives::Range range;
  };

  [[nodiscard]] const ReplicaSet& set_of(std::size_t copy) const { return plan_.sets[plan_.copies[copy].set]; }
  [[nodiscard]] runtime::DType dtype_of(const ReplicaSet& set) const;
  [[nodiscard]] std::size_t pieces_of(const ReplicaSet& set) const;
  [[nodiscard]] collectives::Range piece_of(const ReplicaSet& set, std::size_t number) const;
  [[nodiscard]] std::span<std::byte> values(std::size_t slot) const;
  /// Beside each slot's values, for blocks of files that have them.
  [[nodiscard]] std::span<std::byte> blocks(std::size_t slot) const;
  void read_next();
  void read(const Transfer& piece, std::size_t slot);
  void hash(const Transfer& piece, std::size_t slot);
  /// Between parameters of a unit there is nothing that counts.
  void clear_gaps(const Transfer& piece, std::span<std::byte> values) const;
  /// A set of copies, or one piece of each of them.
  struct Compared {
    std::size_t set = 0;
    std::optional<std::size_t> piece;
  };
  /// Nothing: this rank has no copy.
  [[nodiscard]] std::optional<std::uint64_t> hash_here(const Compared& item) const;
  /// Calls `then` on all ranks with the first `most` of `items` whose copies differ.
  void find_differing(std::vector<Compared> items, std::size_t most,
                      std::function<void(std::vector<Compared>)> then);
  void compare();
  void find_ranks(std::vector<Compared> pieces);
  void finish();

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  Optimizer* optimizer_;
  ParameterRecords* records_;
  Consensus* consensus_;
  std::unique_ptr<runtime::Stream> hashes_on_;

  std::function<void(const ReplicaReport&)> done_;
  ReplicaReport report_;
  runtime::Duration began_{};
  std::size_t next_copy_ = 0, next_piece_ = 0;
  bool reading_ = false;
  std::vector<std::size_t> free_slots_;
  std::size_t missing_ = 0;                         // pieces
  std::vector<std::vector<std::uint64_t>> hashes_;  // by copy and piece
  std::vector<std::optional<std::size_t>> copy_of_set_;
  std::vector<double> agreed_;
};

}  // namespace ranvier::actors
