// Runs the phases of each training step in order, and evaluations, samples and checkpoints after it.
//
//   stage passes → gradients reduced, chunk by chunk → all ranks agree → optimizer → next batch
//
// If every step is applied (no clipping, no dynamic loss scale), the optimizer starts on chunks as they are reduced.
// All ranks still agree on losses, stop requests and whether gradients are finite. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/consensus.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/checkpoint/checkpointer.hpp"
#include "actors/rank/bad_steps.hpp"
#include "actors/rank/evaluation.hpp"
#include "actors/rank/fault_injection.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/rank/sample_writer.hpp"
#include "actors/rank/split_timing.hpp"
#include "actors/rank/step_agreement.hpp"
#include "actors/replicas/replica_check.hpp"
#include "actors/schedule/stage_split.hpp"
#include "models/core/filtered_samples.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Result of a step, identical on all ranks.
struct StepResult {
  std::int64_t step = 0;
  double loss = 0;
  bool has_losses = true;    ///< false: no element of the batch has a loss, and `loss` is undefined
  double gradient_norm = 0;  ///< before clipping, loss scale divided out
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;        ///< no update: fp16 gradients overflowed, or the step is bad
  std::int64_t skips = 0;      ///< skipped steps so far
  std::optional<BadStep> bad;  ///< set for a bad step
  bool evaluation_follows = false;
  bool sample_follows = false;
  std::vector<double> compute_seconds;  ///< compute time of passes by rank; empty with one row
  std::optional<SplitAdvice> split;     ///< once, if layers were timed
};

struct TrainerHooks {
  std::function<void(const StepResult&)> step;
  std::function<void(const EvaluationResult&)> evaluation = {};
  /// `tokens`: prompt and sampled text.
  std::function<void(std::int64_t step, std::span<const std::int32_t> tokens)> sample = {};
  /// A replica check has finished; `follows`: action after a mismatch, none without one.
  std::function<void(const ReplicaReport&, std::optional<BadStepOptions::Action> follows)> checked = {};
  std::function<void()> done;
};

class Trainer final : public Actor {
 public:
  /// Actors that the trainer calls. The last four may be null.
  struct Parts {
    StageActor& stage;
    GradientSync& gradients;
    Optimizer& optimizer;
    Consensus& consensus;
    Evaluation* evaluation;
    SampleWriter* writer;
    ReplicaCheck* replicas;
    Checkpointer* checkpointer;
  };

  Trainer(const RankContext& context, const RankPlan& plan, models::FilteredSamples& samples, const Parts& parts);

  [[nodiscard]] const char* name() const noexcept override { return "trainer"; }
  /// Steps, consumed and dropped samples, loss scale, state of bad-step detection.
  [[nodiscard]] std::vector<StateScalar> scalars() const override;
  void restore_scalars(std::span<const StateScalar> all) override;

  /// Trains all steps, or evaluates if there are none, then calls hooks.done. States must be loaded.
  void start(TrainerHooks hooks);

  /// Current step.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// Returns whether the current step is finished but its evaluation or sample is not.
  [[nodiscard]] bool between_steps() const noexcept { return evaluation_follows_ || sample_follows_; }
  /// Ends the job after the step in which all ranks agree on the request.
  void request_stop() { stop_requested_ = true; }
  [[nodiscard]] bool stop_pending() const noexcept { return stop_requested_; }
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_; }
  /// After hooks.done: set if the run ended for a rollback to a checkpoint.
  [[nodiscard]] const std::optional<Rollback>& rollback() const noexcept { return rollback_; }

 private:
  void begin_step();
  /// Total compute time of passes so far.
  [[nodiscard]] double pass_seconds() const;
  /// Ends the run after the last step is stored.
  void finish();
  /// Calls `then` when all optimizer steps are stored; one at a time.
  void when_stored(runtime::Handler then);
  /// Series of the checkpoint that all ranks agreed to take at this step; 0: none.
  [[nodiscard]] int checkpoint_series();
  /// Handler that an optimizer step calls when it is stored.
  [[nodiscard]] runtime::Handler stepped();
  void phase_done();
  void conclude_step();
  /// Continues after a replica check, so that only checked states are saved.
  void check_replicas();
  void checked(const ReplicaReport& report);
  /// Continues after a step that was agreed on and checked.
  void go_on();
  /// Returns whether there is anything to evaluate.
  [[nodiscard]] bool evaluates() const;
  /// Starts the outstanding evaluation or sample, or else the next step.
  void follow_up();
  /// Requests a rollback to a checkpoint before the current step.
  void roll_back();
  /// Options of this step's update; `factor`: clipping factor of the gradients.
  [[nodiscard]] runtime::UpdateOptions adamw_of_step(double factor) const;
  void evaluate();
  void write_sample();
  /// Adds a span since the last call or the start of the step.
  void trace_since_began(runtime::SpanKind kind);
  /// Stops after a request of any rank during an evaluation or a sample.
  void stop_early();

  const RankContext* context_;
  const RankPlan* plan_;
  const TrainerOptions& options_;
  models::FilteredSamples* samples_;
  Parts parts_;

  TrainerHooks hooks_;
  StepAgreement agreement_;
  SplitTiming split_timing_;
  FaultInjection fault_;
  LossScale loss_scale_;
  BadSteps bad_steps_;
  std::optional<Rollback> rollback_;
  std::int64_t step_ = 0;
  std::int64_t next_sample_ = 0;  // first sample of the current step, or of the next one between steps
  std::int64_t applied_steps_ = 0;
  std::int64_t skips_ = 0;
  int phases_missing_ = 0;  // unfinished phases of the batch: passes, gradients
  double row_loss_ = 0;
  bool has_losses_ = true;   // the batch has losses
  int optimizing_ = 0;       // steps whose states are not all stored
  runtime::Handler stored_;  // called when `optimizing_` becomes 0
  runtime::Duration passes_done_;
  runtime::Duration began_;          // start of the step, evaluation or sample
  bool evaluation_follows_ = false;  // evaluation after this step is outstanding; saved in checkpoints
  bool sample_follows_ = false;      // sample after this step is outstanding; saved in checkpoints
  bool compared_ = false;            // the states after this step have passed a replica check
  double pass_seconds_before_ = 0;   // pass_seconds() at the start of the step
  bool stop_requested_ = false;
  bool stopped_early_ = false;
};

}  // namespace ranvier::actors
