// Answers the questions of a ChoiceFile with the model as it is: of an example's completions the one with the least
// mean loss per token is the model's choice (accuracy "normalised by length", as HellaSwag's is usually given). The
// choices are spread over the rows like the samples of a batch. Loop thread only.
#pragma once

#include "actors/rank/grid_pass.hpp"
#include "models/text/choice_source.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class ChoiceScorer {
 public:
  struct Options {
    int batch_size = 1;  ///< choices at a time, over all rows
    int rows = 1, row = 0;
    int positions = 1;         ///< of the model
    double* losses = nullptr;  ///< pinned [batch_size / rows, positions], on the last stage; else null
  };

  ChoiceScorer(GridPass::Parts parts, std::shared_ptr<const models::ChoiceFile> file, const Options& options);

  /// Calls `done` with the share of examples that were answered rightly, or none once some rank wishes to stop.
  void run(std::int64_t step, std::function<void(std::optional<double> accuracy)> done);

  [[nodiscard]] std::vector<Wait> waits() const { return pass_.waits(); }
  [[nodiscard]] std::string details() const { return pass_.details(); }

 private:
  void score(std::int64_t first);
  [[nodiscard]] double accuracy() const;

  models::ChoiceSource source_;
  Options options_;
  GridPass pass_;
  std::int64_t step_ = 0;
  std::vector<double> scores_;  // mean losses, by choice
  std::function<void(std::optional<double>)> done_;
};

}  // namespace ranvier::actors
