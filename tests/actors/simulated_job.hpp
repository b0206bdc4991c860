// A complete job in one process: every rank of a grid with its own trainer, on the simulation's loops and transports
// and a device that computes inline or late. Final results are compared bit by bit.
#pragma once

#include "actors/rank/rank.hpp"
#include "collectives/nccl/nccl_column.hpp"
#include "models/core/sample_source.hpp"
#include "models/families/gpt.hpp"
#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/doubles/random_tokens.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::tests {

struct JobResult {
  std::vector<actors::StepResult> steps;              ///< results of rank 0
  std::vector<double> evaluations;                    ///< means of rank 0
  std::vector<double> correct;                        ///< EvaluationResult::correct of rank 0
  std::vector<double> accuracies;                     ///< values of rank 0
  std::vector<std::vector<std::int32_t>> texts;       ///< samples
  std::map<std::string, std::vector<float>> weights;  ///< master copies by unit
  std::uint64_t handlers = 0;
  actors::Optimizer::Answers answers;         ///< decisions of rank 0
  std::vector<actors::ReplicaReport> checks;  ///< checks of rank 0
  std::optional<actors::Rollback> rollback;   ///< rollback of rank 0
};

/// On `far` devices, and with messages through pinned memory, no memory is allocated after training has started.
enum class Devices { inline_, delayed, far };

/// Gives a rank's column another factory of communicators, which is connected before the rank trains.
using Attach = std::function<collectives::NcclColumn*(runtime::Simulation&, int rank, actors::RankPlan&)>;

/// Called for a rank that has its weights and does not train yet.
using Prepare = std::function<void(runtime::EventLoop&, actors::Rank&)>;

inline models::GptOptions small_gpt(int layers = 4) {
  return {.layers = layers, .hidden = 16, .heads = 2, .vocab_size = 37, .sequence_length = 8};
}

/// The same model in the job's precision.
inline models::GptOptions in_precision(models::GptOptions gpt, const models::Precision& precision) {
  gpt.precision = precision;
  return gpt;
}

inline actors::TrainerOptions small_run(runtime::GridShape grid = {}, std::string_view sharding = "ddp") {
  actors::TrainerOptions options;
  options.grid = grid;
  options.sharding = collectives::parse_sharding(sharding);
  options.batch_size = 8;
  options.microbatch_size = 2;
  options.steps = 2;
  options.seed = 11;
  options.learning_rate = {.peak = 1e-2, .steps = 2};
  return options;
}

/// A gradient of that rank overflows in that step.
inline actors::TrainerOptions::Fault overflow(int rank, std::int64_t step) {
  return {.rank = rank, .step = step, .kind = actors::TrainerOptions::Fault::Kind::overflow};
}

/// The plan of a rank whose samples are eight tokens long.
inline actors::RankPlan plan_of(const models::Architecture& architecture, const actors::TrainerOptions& options,
                                int rank) {
  return actors::plan_rank(architecture, RandomTokens(8, 37).sample_bytes(), options, rank);
}

/// Gives a rank the initial weights of a run with this seed.
void load_initial_weights(actors::Rank& rank, std::uint64_t seed);

/// Runs the job to its end; `stop_requests` maps ranks to the step of their stop request. Throws if ranks disagree
/// about results, or replicas of a unit about its weights.
[[nodiscard]] JobResult run_simulated(const models::Architecture& architecture, const models::SampleSource& tokens,
                                      const actors::TrainerOptions& options, std::uint64_t seed,
                                      const std::map<int, int>& stop_requests = {}, Devices kind = Devices::inline_,
                                      const Attach& attach = nullptr, const Prepare& prepare = nullptr);

/// The same for a GPT; after `samples` the data repeat.
[[nodiscard]] JobResult run_simulated(const models::GptOptions& gpt, const actors::TrainerOptions& options,
                                      std::uint64_t seed, const std::map<int, int>& stop_requests = {},
                                      std::int64_t samples = 1 << 20, Devices kind = Devices::inline_);
[[nodiscard]] inline JobResult run_simulated(const models::GptOptions& gpt, const actors::TrainerOptions& options,
                                             std::uint64_t seed, Devices kind) {
  return run_simulated(gpt, options, seed, {}, 1 << 20, kind);
}

}  // namespace ranvier::tests
