// NCCL in a run on GPUs: whether it carries out the collectives, and its communicators. Loop thread only, while the
// loop does not run.
#pragma once

#include "apps/train/kernels/collectives_choice.hpp"
#include "apps/train/rank_run.hpp"
#include "collectives/nccl_column.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

class NcclSession {
 public:
  /// Both outlive it; `device` is what this rank computes on.
  NcclSession(const RankRun& run, runtime::Device& device);
  /// Before memory is freed that NCCL may still work on, for peers that will not come: as close().
  ~NcclSession();

  /// All ranks call each of these, in this order; one that fails on any of them throws FailedTogether on all.
  /// Opens NCCL, asks what all ranks have, and decides. Says on rank 0 what was chosen.
  void choose();
  /// Without effect where plans carry out collectives: communicators for actors, to be made by connect().
  [[nodiscard]] collectives::CommunicatorFactory* prepare(std::span<const int> column);
  /// Makes them; blocks. No pinned memory can be taken from here on.
  void connect();

  /// Whether NCCL carries out collectives.
  [[nodiscard]] bool chosen() const noexcept { return choice_.nccl; }
  /// What NCCL has taken of the GPU's memory since before connect().
  [[nodiscard]] std::size_t taken_bytes() const;
  /// What this rank waits for in it.
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;
  /// May be called again.
  void close() noexcept;

 private:
  void open();

  const RankRun& run_;
  runtime::Device& device_;
  std::unique_ptr<collectives::NcclLibrary> library_;
  std::string obstacle_;  // why there is none; empty: nobody asked
  CollectivesChoice choice_;
  std::unique_ptr<collectives::NcclColumn> column_;  // null: collectives are plans
  std::size_t free_before_ = 0;                      // of the GPU's memory
};

}  // namespace ranvier::apps
