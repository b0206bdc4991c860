// What the model is worth, measured by the pipeline that trains it: the mean loss over the validation samples, and the
// share of questions of a QuestionFile that it answers rightly. The same on all ranks. Loop thread only.
#pragma once

#include "actors/rank/grid_pass.hpp"
#include "actors/rank/question_scorer.hpp"
#include "actors/rank/rank_plan.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace ranvier::actors {

/// What all ranks know after an evaluation.
struct EvaluationResult {
  std::int64_t step = 0;
  std::optional<double> loss;  ///< mean over the tokens of the validation samples, if there are any
  std::int64_t samples = 0;    ///< that it is of
  std::int64_t losses = 0;     ///< tokens that it is of
  std::optional<double> hits;  ///< share of those that the model tells rightly, where its last layer counts them
  std::optional<double> accuracy;  ///< of TrainerOptions::questions, likewise
};

class Evaluation final : public Actor {
 public:
  /// `validation` may be null.
  Evaluation(const RankContext& context, const RankPlan& plan, const GridPass::Parts& forward,
             const models::SampleSource* validation);

  [[nodiscard]] const char* name() const noexcept override { return "evaluation"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::string details() const override;

  /// Whether there is anything to evaluate.
  [[nodiscard]] bool any() const noexcept { return validates() || questions_; }
  /// Calls `done` with the result, or with none once some rank wishes to stop. One at a time, between steps.
  void run(std::int64_t step, std::function<void(const EvaluationResult*)> done);

 private:
  [[nodiscard]] bool validates() const noexcept { return pass_ && plan_->options.eval_samples > 0; }
  /// Validation samples from `first` on, a batch of them.
  void evaluate_from(std::int64_t first);
  /// Of all validation samples, as they were counted.
  void finish_validation();
  void score_questions();
  void finish(bool stopped);

  const RankPlan* plan_;
  const models::SampleSource* validation_;
  std::unique_ptr<GridPass> pass_;             // null: there are no validation samples
  std::unique_ptr<QuestionScorer> questions_;  // null: there are no questions
  EvaluationResult result_;
  std::function<void(const EvaluationResult*)> done_;
};

}  // namespace ranvier::actors
