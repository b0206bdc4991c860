// Scores multiple-choice questions (HellaSwag): the completion with the lowest mean loss per token is the model's
// answer (length-normalized accuracy). Completions are spread over the rows like samples of a batch. Loop thread only.
#pragma once

#include "actors/rank/grid_pass.hpp"
#include "models/text/question_source.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

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

}  // namespace ranvier::actors
