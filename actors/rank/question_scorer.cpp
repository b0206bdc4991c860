#include "actors/rank/question_scorer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::actors {

QuestionScorer::QuestionScorer(GridPass::Parts parts, std::shared_ptr<const models::QuestionFile> file,
                               const Options& options)
    : source_(std::move(file), options.positions), options_(options), pass_(std::move(parts), source_) {}

void QuestionScorer::run(std::int64_t step, std::function<void(std::optional<double>)> done) {
  step_ = step;
  done_ = std::move(done);
  scores_.clear();
  score(0);
}

void QuestionScorer::score(std::int64_t first) {
  if (first >= source_.samples()) return std::exchange(done_, nullptr)(accuracy());
  const int row_samples = options_.batch_size / options_.rows,
            positions = source_.positions_of(first, options_.batch_size);
  const std::int64_t row_first = first + std::int64_t{options_.row} * row_samples;
  source_.set_positions(positions);
  pass_.run(
      {.step = step_,
       .first_sample = row_first,
       .samples = row_samples,
       .positions = positions,
       .details = {.losses = options_.losses}},
      static_cast<std::size_t>(options_.batch_size),
      [this, row_samples, row_first, positions](double, std::span<double> scores) {
        if (options_.losses == nullptr) return;
        for (int s = 0; s < row_samples; ++s) {
          const auto [begin, end] = source_.scored(row_first + s);
          const double* const losses = options_.losses + std::ptrdiff_t{s} * positions;
          scores[static_cast<std::size_t>(options_.row * row_samples + s)] =
              std::accumulate(losses + begin, losses + end, 0.0) / static_cast<double>(end - begin);
        }
      },
      [this, first](std::span<const double> scores, bool stop) {
        if (stop) return std::exchange(done_, nullptr)(std::nullopt);
        scores_.insert(scores_.end(), scores.begin(), scores.end());
        score(first + options_.batch_size);
      });
}

double QuestionScorer::accuracy() const {
  const models::QuestionFile& file = source_.file();
  std::size_t right = 0;
  for (std::size_t e = 0; e < file.examples(); ++e) {
    const auto begin = scores_.begin() + static_cast<std::ptrdiff_t>(file.first_answer(e));
    const auto end = begin + static_cast<std::ptrdiff_t>(file.answers_of(e));
    if (static_cast<std::size_t>(std::min_element(begin, end) - begin) == file.right_answer(e)) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(file.examples());
}

}  // namespace ranvier::actors
