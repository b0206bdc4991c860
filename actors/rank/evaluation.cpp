#include "actors/rank/evaluation.hpp"

#include "runtime/base/arithmetic.hpp"

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

Evaluation::Evaluation(const RankContext& context, const RankPlan& plan, const GridPass::Parts& forward,
                       const models::SampleSource* validation)
    : plan_(&plan), validation_(validation) {
  const TrainerOptions& options = plan.options;
  if (validation != nullptr) pass_ = std::make_unique<GridPass>(forward, *validation, options.batch_size);
  if (!options.questions) return;
  questions_ = std::make_unique<QuestionScorer>(
      forward, options.questions,
      QuestionScorer::Options{
          .batch_size = options.batch_size,
          .rows = options.grid.g_data,
          .row = plan.position.row,
          .positions = plan.architecture->positions,
          .losses = plan.stage->last() ? context.arena.slot_as<double>(plan.answer_losses) : nullptr});
}

std::vector<Wait> Evaluation::waits() const {
  std::vector<Wait> all;
  if (pass_) all = pass_->waits();
  if (questions_) append(all, questions_->waits());
  return all;
}

std::string Evaluation::details() const {
  const std::string of_pass = pass_ ? pass_->details() : std::string();
  return of_pass.empty() && questions_ ? questions_->details() : of_pass;
}

void Evaluation::run(std::int64_t step, std::function<void(const EvaluationResult*)> done) {
  done_ = std::move(done);
  result_ = {.step = step};
  if (!validates()) return score_questions();
  result_.loss = 0;
  if (plan_->architecture->layers.back()->counts_correct()) result_.correct = 0;
  result_.samples = plan_->options.eval_samples;
  result_.losses = validation_->losses(0, result_.samples);
  evaluate_from(0);
}

void Evaluation::evaluate_from(std::int64_t first) {
  const TrainerOptions& options = plan_->options;
  // The last batch may be smaller. Its samples are spread over the rows. All rows run the same number of microbatches,
  // because they may gather parameters together.
  const std::int64_t samples = std::min<std::int64_t>(options.batch_size, options.eval_samples - first);
  if (samples <= 0) {
    if (result_.correct) *result_.correct *= models::mean_factor(result_.losses);
    return score_questions();
  }
  const auto row = static_cast<std::size_t>(plan_->position.row);
  const std::int64_t rows = options.grid.g_data, of_row = runtime::ceil_divide(samples, rows);
  const std::int64_t row_first = std::min(samples, plan_->position.row * of_row);
  pass_->run(
      {.step = result_.step,
       .seed = options.seed,
       .first_sample = first + row_first,
       .samples = static_cast<int>(of_row),
       .loss_factor = models::mean_factor(result_.losses),
       .counted = static_cast<int>(std::min(of_row, samples - row_first))},
      static_cast<std::size_t>(2 * rows),
      [this, row, rows](double loss, std::span<double> of_rows) {
        of_rows[row] = loss;
        of_rows[static_cast<std::size_t>(rows) + row] = pass_->correct();
      },
      [this, first, samples, rows](std::span<const double> of_rows, bool stop) {
        if (stop) return finish(true);
        const auto correct = of_rows.begin() + rows;
        result_.loss = std::accumulate(of_rows.begin(), correct, *result_.loss);
        if (result_.correct) result_.correct = std::accumulate(correct, of_rows.end(), *result_.correct);
        evaluate_from(first + samples);
      });
}

void Evaluation::score_questions() {
  if (!questions_) return finish(false);
  questions_->run(result_.step, [this](std::optional<double> accuracy) {
    if (!accuracy) return finish(true);
    result_.accuracy = accuracy;
    finish(false);
  });
}

void Evaluation::finish(bool stopped) { std::exchange(done_, nullptr)(stopped ? nullptr : &result_); }

}  // namespace ranvier::actors
