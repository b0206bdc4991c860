// Checkpoints of simulated jobs in memory: a run's states after a step, complete and independent of any grid.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/checkpoint/checkpointer.hpp"
#include "actors/checkpoint/state_source.hpp"
#include "tests/actors/simulated_job.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ranvier::tests {

struct SavedState {
  std::map<std::string, std::vector<float>> arrays;  ///< key such as "h.0 weights"
  std::map<std::string, decltype(actors::StateScalar::value)> scalars;

  friend bool operator==(const SavedState&, const SavedState&) = default;
};

/// Checkpoint options of a job, and injected failures.
struct CheckpointedJob {
  std::int64_t every = 0;
  bool at_end = true;
  actors::Snapshot::Arrays arrays = actors::Snapshot::all_arrays;
  const SavedState* from = nullptr;  ///< checkpoint to resume from
  models::Tuning tuning;             ///< tuning of the model
  runtime::Duration period{};
  double bytes_per_second = 0;
  std::int64_t slowest_put_us = 2000;  ///< maximum time of writing a piece
  // Numbers of checkpoints of the job, starting at 1:
  int write_fails = 0;    ///< cannot be written on failing_rank
  int prepare_fails = 0;  ///< has no folder
  int failing_rank = 0;
  int stuck_rank = -1;  ///< pieces of this rank are never written: the run throws after 10 s of virtual time
  std::vector<actors::Wait>* waits = nullptr;  ///< rank 0's waits at that time
};

struct CheckpointedResult {
  JobResult job;
  std::map<std::int64_t, SavedState> states;  ///< complete checkpoints by step
  std::vector<actors::CheckpointResult> results;
  std::vector<std::int64_t> discarded;
};

/// Like run_simulated(), with staging of 3 pieces if the options set none.
[[nodiscard]] CheckpointedResult run_checkpointed(const models::GptOptions& gpt, actors::TrainerOptions options,
                                                  const CheckpointedJob& job, std::uint64_t seed,
                                                  Devices kind = Devices::inline_,
                                                  const std::map<int, int>& stop_requests = {});

}  // namespace ranvier::tests
