// Equivalent ranks: ranks of a column on different nodes that do the same at the same time. A prediction simulates one
// of them. With NCCL, whose link traffic follows from formulas, rows meet only in the agreement after a batch, and
// there all equivalents take part (EquivalentConsensus).
#pragma once

#include "actors/base/consensus.hpp"
#include "actors/rank/trainer_options.hpp"

#include <memory>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Number of distinct rows R: row i is equivalent to rows i + R, i + 2R, and so on. R is the smallest valid number of
/// rows; if there is none, all rows are distinct. Valid: R rows occupy separate nodes in every stage, and consist of
/// complete groups or divide one. `nodes`: node by rank.
[[nodiscard]] int distinct_rows(const TrainerOptions& options, std::span<const int> nodes);

class EquivalentRanks {
 public:
  EquivalentRanks(runtime::GridShape grid, int distinct_rows) : grid_(grid, grid.ranks()), rows_(distinct_rows) {}

  [[nodiscard]] bool any() const noexcept { return rows_ < grid_.shape().g_data; }
  /// Simulated equivalent of a rank, possibly itself.
  [[nodiscard]] int simulated(int rank) const;
  /// The other ranks that a simulated rank represents.
  [[nodiscard]] std::vector<int> others(int rank) const;
  /// By rank: whether another rank represents it.
  [[nodiscard]] std::vector<bool> absent() const;

 private:
  runtime::Grid grid_;
  int rows_;
};

/// Agreement of a rank with equivalents. Each equivalent takes part on its own loop and transport and contributes
/// zeros; `done` runs when the last of them has finished.
class EquivalentConsensus final : public Consensus {
 public:
  struct Equivalent {
    runtime::EventLoop& loop;
    runtime::Transport& transport;
  };
  /// All arguments must outlive this object.
  EquivalentConsensus(runtime::EventLoop& loop, runtime::Transport& transport,
                      const std::vector<Equivalent>& equivalent);

  void agree(std::vector<double>& values, runtime::Handler done) override;

  /// Bytes that each rank sent to each of its peers in the last agreement.
  [[nodiscard]] std::size_t bytes() const noexcept { return values_.size() * sizeof(double); }
  /// Peers of an equivalent, by its index.
  [[nodiscard]] std::vector<int> peers_of(std::size_t twin) const { return others_[twin].consensus->peers(); }

 private:
  struct Other {
    runtime::EventLoop* loop;
    std::unique_ptr<Consensus> consensus;
  };
  void one_done(bool mine);

  runtime::EventLoop* loop_;
  // Shared by all equivalents. Values that decide anything are zero in predictions; sums of compute times are
  // meaningless, because equivalents add to the same memory.
  std::vector<double> staging_, values_;
  std::vector<Other> others_;
  std::size_t missing_ = 0;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
