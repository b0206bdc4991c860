// The save at the end of a run: rank 0 collects the weights piece by piece and writes them beside the loop. Loop
// thread only.
#pragma once

#include "actors/states/weight_collector.hpp"
#include "apps/train/file_writer.hpp"
#include "apps/train/files/saved_weights.hpp"
#include "apps/train/rank_run.hpp"

#include <optional>
#include <vector>

namespace ranvier::apps {

/// What a save of this job writes: its tensors, and small files beside them.
[[nodiscard]] std::vector<models::TensorToStore> saved_tensors(const Job& job);
[[nodiscard]] SavedWeights::Beside saved_beside(const Job& job);

class WeightSaving {
 public:
  /// All outlive it.
  WeightSaving(const RankRun& run, FileWriter& writer, actors::Rank& rank);

  /// On all ranks, after the training; `done` is called on the loop when this rank has nothing more to do with it.
  /// What fails is thrown on the loop.
  void start(runtime::Handler done);

 private:
  void collect(runtime::Handler done);

  const RankRun& run_;
  FileWriter& writer_;
  actors::Rank& rank_;
  std::optional<actors::WeightCollector> collector_;
  std::optional<SavedWeights> weights_;  // on rank 0
};

}  // namespace ranvier::apps
