// Evaluates the model with the training pipeline: mean loss over the validation samples, and accuracy on a
// QuestionFile. All ranks get the same result. Loop thread only.
#pragma once

#include "actors/rank/grid_pass.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/text/question_source.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

/// Result of an evaluation, identical on all ranks.
struct EvaluationResult {
  std::int64_t step = 0;
  std::optional<double> loss;  ///< mean over the tokens of the validation samples; none: no samples
  std::int64_t samples = 0;    ///< number of validation samples
  std::int64_t losses = 0;     ///< number of tokens with a loss
  std::optional<double>
      correct;  ///< fraction of correct predictions among `losses`; none: the last layer does not count
  std::optional<double> accuracy;  ///< fraction of correct answers to TrainerOptions::questions; none: no questions
};

class Evaluation final : public Actor {
 public:
  /// `validation` may be null.
  Evaluation(const GridPass::Parts& forward, const models::SampleSource* validation);

  [[nodiscard]] const char* name() const noexcept override { return "evaluation"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::string details() const override;

  /// Returns whether there is anything to evaluate.
  [[nodiscard]] bool any() const noexcept { return validates() || questions_; }
  /// Calls `done` with the result, or null after a stop request of any rank. One at a time, between steps.
  void run(std::int64_t step, std::function<void(const EvaluationResult*)> done);

 private:
  [[nodiscard]] bool validates() const noexcept { return pass_ && plan_->options.eval_samples > 0; }
  /// Evaluates the validation samples starting at `first`, batch by batch, then scores the questions.
  void evaluate_from(std::int64_t first);
  /// Scores completions starting at `first`, batch by batch; they are spread over the rows like samples of a batch.
  void score_from(std::int64_t first);
  /// Fraction of correct answers to multiple-choice questions (HellaSwag). The completion with the lowest mean loss per
  /// token is the model's answer (length-normalized accuracy).
  [[nodiscard]] double accuracy() const;
  void finish(bool stopped);

  const RankPlan* plan_;
  const models::SampleSource* validation_;
  std::unique_ptr<GridPass> pass_;                   // null: there are no validation samples
  std::optional<models::QuestionSource> questions_;  // none: there are no questions
  std::unique_ptr<GridPass> question_pass_;
  double* answer_losses_ = nullptr;  // pinned [samples of a row, positions] on the last stage; otherwise null
  std::vector<double> scores_;       // mean loss per completion
  EvaluationResult result_;
  std::function<void(const EvaluationResult*)> done_;
};

}  // namespace ranvier::actors
