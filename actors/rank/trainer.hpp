// What a batch is made of, in order, and what follows from it.
//
//   stage passes → gradients reduced, chunk by chunk → all ranks agree → optimizer → next batch
//
// Where every step counts (no clipping, no loss scale that adapts) the optimizer takes chunks as they are reduced;
// all ranks agree all the same, on losses, wishes to stop and whether gradients were finite. Loop thread only.
#pragma once

#include "actors/rank/consensus.hpp"
#include "actors/rank/evaluation.hpp"
#include "actors/rank/part.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/rank/rank_plan.hpp"

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
  double gradient_norm = 0;  ///< before clipping, loss scale divided out
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;    ///< fp16 gradients overflowed; parameters are as before
  std::int64_t skips = 0;  ///< so far
  bool evaluation_follows = false;
  bool sample_follows = false;
};

struct TrainerHooks {
  std::function<void(const StepResult&)> step;
  std::function<void(const EvaluationResult&)> evaluation = {};
  /// Prompt and what follows it.
  std::function<void(std::int64_t step, std::span<const std::int32_t> tokens)> sample = {};
  std::function<void()> done;
};

class Trainer final : public Part {
 public:
  /// What it tells when to do what. The last two may be null.
  struct Parts {
    StageActor& stage;
    GradientSync& gradients;
    Optimizer& optimizer;
    Consensus& consensus;
    Evaluation* evaluation;
    SampleWriter* writer;
  };

  Trainer(const RankContext& context, const RankPlan& plan, const models::SampleSource& source, const Parts& parts);

  [[nodiscard]] const char* name() const noexcept override { return "trainer"; }

  /// Trains all steps, or evaluates where there are none, then calls hooks.done. States are loaded.
  void start(TrainerHooks hooks);

  /// The step that is being computed.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// The job ends after the step in which all ranks have heard of it.
  void request_stop() { stop_requested_ = true; }
  [[nodiscard]] bool wishes_to_stop() const noexcept { return stop_requested_; }
  [[nodiscard]] bool stopped_early() const noexcept { return stopped_early_; }

 private:
  void begin_step();
  /// Whether the step stops here, as a fault of this rank asks for.
  [[nodiscard]] bool inject_fault();
  void finish();
  /// What a step of the optimizer calls when nothing of it is under way.
  [[nodiscard]] runtime::Handler stepped();
  void phase_done();
  void conclude_step();
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
  const models::SampleSource* source_;
  Parts parts_;

  TrainerHooks hooks_;
  LossScale loss_scale_;
  std::int64_t step_ = 0;
  std::int64_t applied_steps_ = 0;
  std::int64_t skips_ = 0;
  int phases_missing_ = 0;  // of a batch: passes, gradients
  double row_loss_ = 0;
  int optimizing_ = 0;     // steps whose states are not all where they belong
  bool finished_ = false;  // all steps were decided; the last one's parameters may be under way
  runtime::Duration passes_done_;
  runtime::Duration began_;  // the step, its validation, or the sample of text after it
  bool sample_follows_ = false;
  std::vector<double> agreed_;
  bool stop_requested_ = false;
  bool stopped_early_ = false;
};

}  // namespace ranvier::actors
