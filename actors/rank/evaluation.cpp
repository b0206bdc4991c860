#include "actors/rank/evaluation.hpp"

#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::actors {

Evaluation::Evaluation(const GridPass::Parts& forward, const models::SampleSource* validation)
    : plan_(forward.plan), validation_(validation) {
  const TrainerOptions& options = plan_->options;
  if (validation != nullptr) pass_ = std::make_unique<GridPass>(forward, *validation, options.batch_size);
  if (!options.questions) return;
  questions_.emplace(options.questions, plan_->architecture->positions);
  question_pass_ = std::make_unique<GridPass>(forward, *questions_);
  if (plan_->stage->last()) answer_losses_ = forward.context->arena.slot_as<double>(plan_->answer_losses);
}

std::vector<Wait> Evaluation::waits() const {
  std::vector<Wait> all;
  if (pass_) all = pass_->waits();
  if (question_pass_) append(all, question_pass_->waits());
  return all;
}

std::string Evaluation::details() const {
  const std::string of_pass = pass_ ? pass_->details() : std::string();
  return of_pass.empty() && question_pass_ ? question_pass_->details() : of_pass;
}

void Evaluation::run(std::int64_t step, std::function<void(const EvaluationResult*)> done) {
  done_ = std::move(done);
  result_ = {.step = step};
  scores_.clear();
  if (!validates()) return score_from(0);
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
    return score_from(0);
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

void Evaluation::score_from(std::int64_t first) {
  if (!questions_) return finish(false);
  if (first >= questions_->samples()) {
    result_.accuracy = accuracy();
    return finish(false);
  }
  const int batch_size = plan_->options.batch_size, row_samples = batch_size / plan_->options.grid.g_data,
            row_begin = plan_->position.row * row_samples, positions = questions_->positions_of(first, batch_size);
  questions_->set_positions(positions);
  question_pass_->run(
      {.step = result_.step,
       .first_sample = first + row_begin,
       .samples = row_samples,
       .positions = positions,
       .details = {.losses = answer_losses_}},
      static_cast<std::size_t>(batch_size),
      [this, first, row_samples, row_begin, positions](double, std::span<double> scores) {
        if (answer_losses_ == nullptr) return;
        for (int s = 0; s < row_samples; ++s) {
          const auto [begin, end] = questions_->scored(first + row_begin + s);
          const double* const losses = answer_losses_ + std::ptrdiff_t{s} * positions;
          scores[static_cast<std::size_t>(row_begin + s)] =
              std::accumulate(losses + begin, losses + end, 0.0) / static_cast<double>(end - begin);
        }
      },
      [this, first, batch_size](std::span<const double> scores, bool stop) {
        if (stop) return finish(true);
        scores_.insert(scores_.end(), scores.begin(), scores.end());
        score_from(first + batch_size);
      });
}

double Evaluation::accuracy() const {
  const models::QuestionFile& file = questions_->file();
  std::size_t right = 0;
  for (std::size_t e = 0; e < file.examples(); ++e) {
    const auto begin = scores_.begin() + static_cast<std::ptrdiff_t>(file.first_answer(e));
    const auto end = begin + static_cast<std::ptrdiff_t>(file.answers_of(e));
    if (static_cast<std::size_t>(std::min_element(begin, end) - begin) == file.right_answer(e)) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(file.examples());
}

void Evaluation::finish(bool stopped) { std::exchange(done_, nullptr)(stopped ? nullptr : &result_); }

}  // namespace ranvier::actors
