// Checkpoints of simulated jobs, kept in memory: what a training's states were after a step, whole and free of any
// grid.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/checkpoint/checkpointer.hpp"
#include "actors/checkpoint/state_source.hpp"
#include "tests/actors/simulated_job.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ranvier::tests {

struct SavedState {
  std::map<std::string, std::vector<float>> arrays;  ///< by "h.0 weights"
  std::map<std::string, decltype(actors::StateScalar::value)> scalars;

  friend bool operator==(const SavedState&, const SavedState&) = default;
};

/// How a job takes checkpoints, and what goes wrong.
struct CheckpointedJob {
  std::int64_t every = 0;
  bool at_end = true;
  actors::Snapshot::Arrays arrays = actors::Snapshot::all_arrays;
  const SavedState* from = nullptr;  ///< that it resumes
  models::Tuning tuning;             ///< of the model
  runtime::Duration period{};
  double bytes_per_second = 0;
  std::int64_t slowest_put_us = 2000;  ///< a piece takes up to so long
  // Counted through the checkpoints of the job, from 1:
  int write_fails = 0;    ///< that cannot be written on failing_rank
  int prepare_fails = 0;  ///< that has no folder
  int failing_rank = 0;
  int stuck_rank = -1;  ///< whose pieces are never taken: the run throws after 10 s, of virtual time
  std::vector<actors::Wait>* waits = nullptr;  ///< those of rank 0 then
};

struct CheckpointedResult {
  JobResult job;
  std::map<std::int64_t, SavedState> states;  ///< by step, whole ones
  std::vector<actors::CheckpointResult> results;
  std::vector<std::int64_t> discarded;
};

/// As run_simulated(), with staging of 3 pieces where the options give none.
[[nodiscard]] CheckpointedResult run_checkpointed(const models::GptOptions& gpt, actors::TrainerOptions options,
                                                  const CheckpointedJob& job, std::uint64_t seed,
                                                  Devices kind = Devices::inline_,
                                                  const std::map<int, int>& stop_requests = {});

}  // namespace ranvier::tests
