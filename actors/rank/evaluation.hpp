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

/// Scores multiple-choice questions (HellaSwag): the completion with the lowest mean loss per token is the model's
/// answer (length-normalized accuracy). Completions are spread over the rows like samples of a batch.
class QuestionScorer {
 public:
  struct Options {
    int batch_size = 1;  ///< completions per batch over all rows
    int rows = 1, row = 0;
    int positions = 1;         ///< positions of the model
    double* losses = nullptr;  ///< pinned [batch_size / rows, positions] on the last stage; otherwise null
  };

  QuestionScorer(GridPass::Parts parts, std::shared_ptr<const models::QuestionFile> file, const Options& options);

  /// Calls `done` with the fraction of correct answers, or nothing after a stop request of any rank.
  void run(std::int64_t step, std::function<void(std::optional<double> accuracy)> done);

  [[nodiscard]] std::vector<Wait> waits() const { return pass_.waits(); }
  [[nodiscard]] std::string details() const { return pass_.details(); }

 private:
  void score(std::int64_t first);
  [[nodiscard]] double accuracy() const;

  models::QuestionSource source_;
  Options options_;
  GridPass pass_;
  std::int64_t step_ = 0;
  std::vector<double> scores_;  // mean loss per completion
  std::function<void(std::optional<double>)> done_;
};

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
  Evaluation(const RankContext& context, const RankPlan& plan, const GridPass::Parts& forward,
             const models::SampleSource* validation);

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
