// One rank's actors, joined: what a batch is made of, in order, and what follows from it.
//
//   stage passes → gradients reduced, chunk by chunk → all ranks agree → optimizer → next batch
//
// Where every step counts (no clipping, no loss scale that adapts) the optimizer takes chunks as they are reduced;
// all ranks agree all the same, on losses, wishes to stop and whether gradients were finite.
//
// The loop, transport and device come from outside, so the same trainer runs over MPI in its own process and
// beside others in a simulation. Loop thread only.
#pragma once

#include "actors/rank/choice_scorer.hpp"
#include "actors/rank/consensus.hpp"
#include "actors/rank/fill_state.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/rank/rank_plan.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// What all ranks know after a step.
struct StepResult {
  std::int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;  ///< before clipping, loss scale divided out
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;      ///< fp16 gradients overflowed; parameters are as before
  std::int64_t skips = 0;    ///< so far
  bool evaluation_follows = false;
  bool sample_follows = false;
};

/// What all ranks know after an evaluation.
struct EvaluationResult {
  std::int64_t step = 0;
  std::optional<double> loss;      ///< mean over the tokens of the validation samples, if there are any
  std::int64_t samples = 0;        ///< that it is of
  std::int64_t losses = 0;         ///< tokens that it is of
  std::optional<double> accuracy;  ///< of TrainerOptions::choices, likewise
};

struct TrainerHooks {
  std::function<void(const StepResult&)> step;
  std::function<void(const EvaluationResult&)> evaluation = {};
  /// Prompt and what follows it.
  std::function<void(std::int64_t step, std::span<const std::int32_t> tokens)> sample = {};
  std::function<void()> done;
};

class Trainer {
 public:
  /// Allocates what `plan` says and nothing later. `validation` may be null. All references outlive it.
  Trainer(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
          const models::Architecture& architecture, const models::SampleSource& source,
          const models::SampleSource* validation, const TrainerOptions& options, RankPlan plan);
  ~Trainer();

  /// Fills the parameters; blocks. Before start(), which asks for master weights and what lives off the device.
  void load_weights(const WeightSource& weights);

  /// Trains all steps, or evaluates where there are none, then calls hooks.done.
  void start(TrainerHooks hooks);

  /// What collectives and pulls are under way, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;
  /// For people: what keeps states in files, and what the system refused; empty: nothing does.
  [[nodiscard]] std::string tier_description() const { return tiers_.description(); }
  /// Folders of dead jobs that this rank removed where its files are.
  [[nodiscard]] int cleared_folders() const { return tiers_.cleared(); }
  /// The step that is being computed.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }

  /// The job ends after the step in which all ranks have heard of it. Loop thread.
  void request_stop() { stop_requested_ = true; }
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_; }

  [[nodiscard]] const RankPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const Optimizer::Answers& answers() const noexcept { return optimizer_->answers(); }
  [[nodiscard]] runtime::Trace& trace() noexcept { return trace_; }
  [[nodiscard]] runtime::StreamView compute() const noexcept { return *compute_; }
  /// Copies elements [begin, begin + out.size()) of the master weights of a unit of this stage, which lie in the part
  /// whose optimizer states this rank holds, then calls `done` on the loop. After the training.
  void read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

 private:
  void begin_step();
  void finish();
  /// What a step of the optimizer calls when nothing of it is under way.
  [[nodiscard]] runtime::Handler stepped();
  void phase_done();
  void conclude_step();
  /// The step that is being computed, if it counts; `factor`: what clipping leaves of the gradients.
  [[nodiscard]] runtime::AdamWOptions adamw_of_step(double factor) const;
  void after_step(const StepResult& result);
  [[nodiscard]] bool validates() const noexcept { return validation_pass_ && options_.eval_samples > 0; }
  void evaluate();
  /// Validation samples from `first` on, a batch of them.
  void evaluate_from(std::int64_t first);
  void score_choices();
  void evaluated();
  void write_sample();
  /// One span for all that was done since the last call, or since the step began.
  void trace_since_began(runtime::SpanKind kind);
  /// After an answer of all ranks; whether the job ends here.
  bool stops(bool wished);

  runtime::EventLoop* loop_;
  runtime::Device* device_;
  const models::SampleSource* source_;
  const models::SampleSource* validation_;
  TrainerOptions options_;
  RankPlan plan_;
  std::size_t unit_count_;
  // Where this rank's part of a unit's square stands among those that make up the norm, by unit of the stage; none
  // where another rank gives it.
  std::vector<std::optional<std::size_t>> square_place_;
  std::size_t squares_ = 0;
  runtime::Trace trace_;

  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  Loader::Places load_places_;
  RankContext context_;
  Loader loader_;
  std::unique_ptr<ParameterTier> parameter_tier_;  // null: on the device
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientRecords> gradients_;  // null: sums are on the device
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ActivationTier> checkpoints_;
  std::unique_ptr<StageActor> stage_actor_;
  Consensus consensus_;
  std::unique_ptr<GridPass> validation_pass_;     // these three: null where nobody asks for them
  std::unique_ptr<ChoiceScorer> choice_scorer_;
  std::unique_ptr<SampleWriter> sample_writer_;

  TrainerHooks hooks_;
  WeightSource weights_;  // until start()
  LossScale loss_scale_;
  std::int64_t step_ = 0;
  std::int64_t applied_steps_ = 0;
  std::int64_t skips_ = 0;
  int phases_missing_ = 0;  // of a batch: passes, gradients
  double row_loss_ = 0;
  int optimizing_ = 0;       // steps whose states are not all where they belong
  bool finished_ = false;    // all steps were decided; the last one's parameters may be under way
  runtime::Trace::Clock::time_point passes_done_;
  runtime::Trace::Clock::time_point began_;  // the step, its validation, or the sample of text after it
  EvaluationResult evaluation_;
  bool sample_follows_ = false;
  std::vector<double> agreed_;
  bool stop_requested_ = false;
  bool stopped_early_ = false;
};

}  // namespace ranvier::actors
