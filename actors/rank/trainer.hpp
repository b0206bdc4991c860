// What a batch is made of, in order, and what follows from it.
//
//   stage passes → gradients reduced, chunk by chunk → all ranks agree → optimizer → next batch
//
// Where every step counts (no clipping, no loss scale that adapts) the optimizer takes chunks as they are reduced;
// all ranks agree all the same, on losses, wishes to stop and whether gradients were finite. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/pipeline/stage_split.hpp"
#include "actors/rank/consensus.hpp"
#include "actors/rank/evaluation.hpp"
#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/rank/sample_writer.hpp"
#include "actors/watch/bad_steps.hpp"
#include "actors/watch/replica_check.hpp"
#include "models/filtered_samples.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// What all ranks know after a step.
struct StepResult {
  std::int64_t step = 0;
  double loss = 0;
  bool has_losses = true;    ///< false: no element of the batch has one, and `loss` says nothing
  double gradient_norm = 0;  ///< before clipping, loss scale divided out
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;        ///< fp16 gradients overflowed, or the step is bad; parameters are as before
  std::int64_t skips = 0;      ///< so far
  std::optional<BadStep> bad;  ///< and what becomes of it
  bool evaluation_follows = false;
  bool sample_follows = false;
  std::vector<double> compute_seconds;  ///< of the passes, by rank; empty: nobody compares them, with one row
  std::optional<SplitAdvice> split;     ///< once, where layers were timed
};

struct TrainerHooks {
  std::function<void(const StepResult&)> step;
  std::function<void(const EvaluationResult&)> evaluation = {};
  /// Prompt and what follows it.
  std::function<void(std::int64_t step, std::span<const std::int32_t> tokens)> sample = {};
  /// Copies of states were compared; `follows` is what becomes of damage, none where there is none.
  std::function<void(const ReplicaReport&, std::optional<BadStepOptions::Action> follows)> checked = {};
  std::function<void()> done;
};

class Trainer final : public Actor {
 public:
  /// What it tells when to do what. The last four may be null.
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
  /// Where the training is: steps, samples that were taken and left out, the loss scale, what bad steps are judged by.
  [[nodiscard]] std::vector<StateScalar> scalars() const override;
  void restore_scalars(std::span<const StateScalar> all) override;

  /// Trains all steps, or evaluates where there are none, then calls hooks.done. States are loaded.
  void start(TrainerHooks hooks);

  /// The step that is being computed.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// That step is done, and what follows it, an evaluation or a text, is not.
  [[nodiscard]] bool between_steps() const noexcept { return evaluation_follows_ || sample_follows_; }
  /// The job ends after the step in which all ranks have heard of it.
  void request_stop() { stop_requested_ = true; }
  [[nodiscard]] bool stop_pending() const noexcept { return stop_requested_; }
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_; }
  /// After hooks.done: the training ended here to be gone on with from a checkpoint.
  [[nodiscard]] const std::optional<Rollback>& rollback() const noexcept { return rollback_; }

 private:
  void begin_step();
  /// Whether the step stops here, as a fault of this rank asks for.
  [[nodiscard]] bool inject_fault();
  /// Whether the layers of this step are timed; whether all ranks hear at its end what layers took.
  [[nodiscard]] bool times_layers() const;
  [[nodiscard]] bool tells_layers() const;
  /// What the stream has spent on passes so far.
  [[nodiscard]] double pass_seconds() const;
  void add_layer_seconds(double* to);
  [[nodiscard]] SplitAdvice advice_of(const double* agreed) const;
  void finish();
  /// Calls `then` as soon as nothing of the optimizer's steps is under way; one at a time.
  void when_stored(runtime::Handler then);
  /// All steps were decided, and nothing of them is under way.
  void end_run();
  /// That all ranks agreed to take a checkpoint of with this step; 0: none.
  [[nodiscard]] int checkpoint_series() const;
  /// What a step of the optimizer calls when nothing of it is under way.
  [[nodiscard]] runtime::Handler stepped();
  void phase_done();
  void conclude_step();
  void check_replicas();
  void check_or(const runtime::Handler& next);
  void checked(const ReplicaReport& report);
  /// The step was decided, and may be gone on from.
  void go_on();
  /// There is something to evaluate.
  [[nodiscard]] bool evaluates() const;
  /// What is to be done after a step, and is not done yet; then the next step.
  void follow_up();
  /// After the step that is being computed, the training goes on from a checkpoint that is not newer than that.
  void roll_back(std::int64_t newest_step);
  /// The step that is being computed, if it counts; `factor`: what clipping leaves of the gradients.
  [[nodiscard]] runtime::AdamWOptions adamw_of_step(double factor) const;
  void evaluate();
  void write_sample();
  /// One span for all that was done since the last call, or since the step began.
  void trace_since_began(runtime::SpanKind kind);
  /// Some rank wished to, in an evaluation or a sample.
  void stop_early();

  const RankContext* context_;
  const RankPlan* plan_;
  const TrainerOptions& options_;
  models::FilteredSamples* samples_;
  Parts parts_;

  TrainerHooks hooks_;
  LossScale loss_scale_;
  BadSteps bad_steps_;
  std::optional<Rollback> rollback_;
  std::int64_t step_ = 0;
  std::int64_t next_sample_ = 0;  // the first one of the step that is being computed, or of the one after it
  std::int64_t applied_steps_ = 0;
  std::int64_t skips_ = 0;
  int phases_missing_ = 0;  // of a batch: passes, gradients
  double row_loss_ = 0;
  bool has_losses_ = true;   // the batch
  double loss_fault_ = 1;    // what this rank makes of it, as a fault asks for
  int optimizing_ = 0;       // steps whose states are not all where they belong
  runtime::Handler stored_;  // waits for them
  runtime::Duration passes_done_;
  runtime::Duration began_;          // the step, its validation, or the sample of text after it
  bool evaluation_follows_ = false;  // the last step, and is not done; saved, for a run that goes on
  bool sample_follows_ = false;      // likewise
  bool damage_done_ = false;         // as a fault asks for
  bool compared_ = false;            // the states after this step, with the other copies
  double pass_seconds_before_ = 0;   // the step
  std::int64_t steps_run_ = 0;       // by this process, with the one that is being computed
  std::vector<double> agreed_;
  bool stop_requested_ = false;
  bool stopped_early_ = false;
  std::vector<std::vector<LayerSeconds>> layer_steps_;  // that were timed
};

}  // namespace ranvier::actors
