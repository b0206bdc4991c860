// Saves of weights for others: the one at the end of a run, and those in the middle of it. Every rank writes its own
// part straight into the files. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/rank/rank.hpp"
#include "apps/train/files/disk_retry.hpp"
#include "apps/train/files/weight_target.hpp"
#include "apps/train/rank_run.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace ranvier::apps {

/// What a save of this job writes: tensors in files, and small files beside them. `base`: the weights that adapters
/// were trained beside.
[[nodiscard]] models::WeightLayout saved_layout(const TrainOptions& options, const Job& job);
[[nodiscard]] models::FilesBeside saved_beside(const TrainOptions& options, const Job& job,
                                               const std::string& base);
/// What all of them take, but for some bytes.
[[nodiscard]] std::uint64_t saved_bytes(const TrainOptions& options, const Job& job);

/// What a reader of them looks for first: the file, or the index of several.
[[nodiscard]] std::filesystem::path saved_path(const TrainOptions& options, const Job& job);

/// Where --save-every puts the weights of a step: SAVE/weights-00000500.
[[nodiscard]] std::filesystem::path weights_folder(const std::string& save, std::int64_t step);

/// The save at the end, which nothing else has: where a disk is full, it waits.
class WeightSaving {
 public:
  /// `job`: models::random_job() of rank 0. `base`: as above. All else outlives it.
  WeightSaving(const RankRun& run, runtime::Device& host, actors::Rank& rank, const std::string& job,
               const std::string& base);

  /// On all ranks, after the training; `done` is called on the loop when this rank has nothing more to do with it.
  /// What fails on any rank is thrown on rank 0's loop.
  void start(runtime::Handler done);

 private:
  struct UnitRange {
    std::size_t unit = 0;   // of the stage
    std::size_t begin = 0;  // of it
    std::size_t count = 0;
  };

  void open();
  void next();
  void closed(const actors::CheckpointShare& share);
  void commit(const std::vector<std::string>& blocks);
  /// On rank 0: `work` on its thread, then `done` on the loop with what it threw.
  void on_thread(std::function<void()> work, std::function<void(const std::string& failure)> done);
  [[noreturn]] void lose(const std::string& failure) const;

  const RankRun& run_;
  actors::Rank& rank_;
  std::uint64_t bytes_;
  WeightTarget target_;
  BackgroundWriter files_;  // of rank 0
  std::vector<UnitRange> pieces_;
  std::vector<float> values_;
  std::size_t next_ = 0;  // piece
  std::byte prepared_{};  // what rank 0 sends when it has
  runtime::Handler done_;
};

/// Saves in the middle of a run, for Rank::add_checkpoints().
[[nodiscard]] WeightTarget::Options weights_of_steps(const RankRun& run, const std::string& job,
                                                     const std::string& base);

}  // namespace ranvier::apps
