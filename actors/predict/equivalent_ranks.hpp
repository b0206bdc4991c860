// Ranks that do the same as others of their column at the same time, on other nodes. A prediction needs one of each:
// where collectives are NCCL's, which know by formula what all their members' links carry, rows of a column meet
// nowhere else but in the agreement after a batch, and in that the others take part as they would (EquivalentConsensus).
#pragma once

#include "actors/rank/consensus.hpp"
#include "actors/rank/trainer_options.hpp"

#include <memory>
#include <span>
#include <vector>

namespace ranvier::actors {

/// The first rows of a job, of which each stands for all that are a multiple of their number further on: the fewest
/// that fill nodes of their own in every stage, with whole groups or as parts of one. All rows where there are none.
/// `nodes`: of every rank.
[[nodiscard]] int distinct_rows(const TrainerOptions& options, std::span<const int> nodes);

class EquivalentRanks {
 public:
  EquivalentRanks(runtime::GridShape grid, int distinct_rows) : grid_(grid, grid.ranks()), rows_(distinct_rows) {}

  [[nodiscard]] bool any() const noexcept { return rows_ < grid_.shape().g_data; }
  /// The rank that is simulated for this one, perhaps itself.
  [[nodiscard]] int simulated(int rank) const;
  /// Those that this one, which is simulated, stands for beside itself.
  [[nodiscard]] std::vector<int> others(int rank) const;
  /// By rank, whether another one stands for it.
  [[nodiscard]] std::vector<bool> absent() const;

 private:
  runtime::Grid grid_;
  int rows_;
};

/// The agreement of a rank that stands for others: they agree as it does, on loops and transports of their own, and it
/// goes on when the last of them would. What they would say is that they have nothing to say.
class EquivalentConsensus final : public Consensus {
 public:
  struct Equivalent {
    runtime::EventLoop& loop;
    runtime::Transport& transport;
  };
  /// All outlive it.
  EquivalentConsensus(runtime::EventLoop& loop, runtime::Transport& transport,
                      const std::vector<Equivalent>& equivalent);

  void agree(std::vector<double>& values, runtime::Handler done) override;

  /// Of the last agreement; each rank sends so many to each of its peers.
  [[nodiscard]] std::size_t bytes() const noexcept { return values_.size() * sizeof(double); }
  /// Peers of a twin, by its place among them.
  [[nodiscard]] std::vector<int> peers_of(std::size_t twin) const { return others_[twin].consensus->peers(); }

 private:
  struct Other {
    runtime::EventLoop* loop;
    std::unique_ptr<Consensus> consensus;
  };
  void one_done(bool mine);

  runtime::EventLoop* loop_;
  // Of all twins. What decides anything is zero in predictions; compute times mean nothing here, since twins add to the
  // same memory.
  std::vector<double> staging_, values_;
  std::vector<Other> others_;
  std::size_t missing_ = 0;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
