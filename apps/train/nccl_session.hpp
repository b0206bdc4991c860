// NCCL in a run on GPUs: the decision whether to use it, and its communicators. Loop thread only, while the loop does
// not run.
#pragma once

#include "apps/job/rank_run.hpp"
#include "apps/options/collectives_choice.hpp"
#include "collectives/nccl/nccl_column.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

class NcclSession {
 public:
  /// Both arguments outlive this object. `device`: this rank's GPU.
  NcclSession(const RankRun& run, runtime::Device& device);
  /// Calls close(). Must run before memory that NCCL may still use is freed.
  ~NcclSession();

  // Called by all ranks, in this order. A failure on any rank throws FailedTogether on all.
  /// Opens NCCL, compares versions and GPUs of all ranks, and decides. Prints the choice on rank 0.
  void choose();
  /// Communicators for the actors, created later by connect(); null if collectives use plans.
  [[nodiscard]] collectives::CommunicatorFactory* prepare(std::span<const int> column);
  /// Creates the communicators; blocks. Pinned memory cannot be allocated afterwards.
  void connect();

  /// Whether collectives use NCCL.
  [[nodiscard]] bool chosen() const noexcept { return choice_.nccl; }
  /// GPU memory that NCCL has allocated since connect() began.
  [[nodiscard]] std::size_t taken_bytes() const;
  /// Pending waits of this rank in NCCL.
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;
  /// Idempotent.
  void close() noexcept;

 private:
  void open();

  const RankRun& run_;
  runtime::Device& device_;
  std::unique_ptr<collectives::NcclLibrary> library_;
  std::string obstacle_;  // reason why NCCL is unavailable; empty: none, or not tried
  CollectivesChoice choice_;
  std::unique_ptr<collectives::NcclColumn> column_;  // null: collectives use plans
  std::size_t free_before_ = 0;                      // free GPU bytes before connect()
};

}  // namespace ranvier::apps
