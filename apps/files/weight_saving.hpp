// Saves of weights (--save, --save-every). Every rank writes its shards directly into the files. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/rank/rank.hpp"
#include "apps/files/disk_retry.hpp"
#include "apps/files/weight_target.hpp"
#include "apps/job/rank_run.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace ranvier::apps {

/// Approximate bytes of all files of a save.
[[nodiscard]] std::uint64_t saved_bytes(const TrainOptions& options, const Job& job);

/// Path to open first: the weights file, or the index of several.
[[nodiscard]] std::filesystem::path saved_path(const TrainOptions& options, const Job& job);

/// Folder of the weights of a step with --save-every: SAVE/weights-00000500.
[[nodiscard]] std::filesystem::path weights_folder(const std::string& save, std::int64_t step);

/// Save at the end of a run. Waits for space on a full disk, since these weights are stored nowhere else.
class WeightSaving {
 public:
  /// `job`: models::random_job() of rank 0. `base`: as above. All references outlive it.
  WeightSaving(const RankRun& run, runtime::Device& host, actors::Rank& rank, const std::string& job,
               const std::string& base);

  /// Starts the save; all ranks call it after the last step. `done` runs on the loop when this rank has finished. An
  /// error on any rank is thrown on rank 0's loop.
  void start(runtime::Handler done);

 private:
  struct UnitRange {
    std::size_t unit = 0;   // index in the stage's units
    std::size_t begin = 0;  // element of the unit
    std::size_t count = 0;
  };

  void open();
  void next();
  void closed(const actors::CheckpointShare& share);
  void commit(const std::vector<std::string>& blocks);
  [[noreturn]] void lose(const std::string& failure) const;

  const RankRun& run_;
  actors::Rank& rank_;
  std::uint64_t bytes_;
  WeightTarget target_;
  BackgroundWriter files_;  // used on rank 0
  std::vector<UnitRange> pieces_;
  std::vector<float> values_;
  std::size_t next_ = 0;  // index in pieces_
  std::byte prepared_{};  // payload of rank 0's message that the files exist
  runtime::Handler done_;
};

/// Options of saves during a run (--save-every), for Rank::add_checkpoints().
[[nodiscard]] WeightTarget::Options weights_of_steps(const RankRun& run, const std::string& job,
                                                     const std::string& base);

}  // namespace ranvier::apps
