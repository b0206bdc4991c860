#include "actors/rank/trainer.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

Trainer::Trainer(const RankContext& context, const RankPlan& plan, models::FilteredSamples& samples,
                 const Parts& parts)
    : context_(&context),
      plan_(&plan),
      options_(plan.options),
      samples_(&samples),
      parts_(parts),
      agreement_(plan.options.grid),
      split_timing_(plan, parts.stage),
      fault_(context, plan, parts.stage, parts.gradients),
      loss_scale_(plan.options.loss_scale),
      bad_steps_(plan.options.bad_steps) {
  parts_.gradients.when_reduced([this](std::size_t chunk) { parts_.optimizer.reduced(chunk); });
}

std::vector<StateScalar> Trainer::scalars() const {
  std::vector<StateScalar> all = {
      {"step", step_}, {"applied_steps", applied_steps_}, {"skips", skips_}, {"next_sample", next_sample_}};
  std::vector<std::int64_t> left_out;
  for (const models::SampleRange& range : samples_->left_out()) {
    left_out.push_back(range.begin);
    left_out.push_back(range.count);
  }
  const BadSteps::State& bad = bad_steps_.state();
  all.push_back({"left_out_samples", std::move(left_out)});  // first sample and count of each range
  all.push_back({"recent_losses", bad.losses.numbers()});
  all.push_back({"last_bad_step", bad.row.last});
  all.push_back({"bad_steps_in_a_row", bad.row.count});
  // Whether evaluation and sample of `step` are outstanding because a stop request came first.
  all.push_back({"evaluation_follows", std::int64_t{evaluation_follows_}});
  all.push_back({"sample_follows", std::int64_t{sample_follows_}});
  if (loss_scale_.dynamic) {
    all.push_back({"loss_scale", loss_scale_.scale});
    all.push_back({"good_steps_at_loss_scale", loss_scale_.good_steps});
  }
  return all;
}

void Trainer::restore_scalars(std::span<const StateScalar> all) {
  const auto restore = [&](std::string_view name, auto& number) {
    number = find_scalar<std::decay_t<decltype(number)>>(all, name).value_or(number);
  };
  restore("step", step_);
  restore("applied_steps", applied_steps_);
  restore("skips", skips_);
  restore("next_sample", next_sample_);
  BadSteps::State& bad = bad_steps_.state();
  restore("last_bad_step", bad.row.last);
  restore("bad_steps_in_a_row", bad.row.count);
  evaluation_follows_ = find_scalar<std::int64_t>(all, "evaluation_follows").value_or(0) != 0;
  sample_follows_ = find_scalar<std::int64_t>(all, "sample_follows").value_or(0) != 0;
  for (const double loss : find_scalar<std::vector<double>>(all, "recent_losses").value_or(std::vector<double>()))
    bad.losses.add(loss);
  const auto left_out = find_scalar<std::vector<std::int64_t>>(all, "left_out_samples");
  for (std::size_t i = 0; left_out && i + 1 < left_out->size(); i += 2)
    samples_->leave_out({(*left_out)[i], (*left_out)[i + 1]});
  if (!loss_scale_.dynamic) return;  // a fixed scale comes from this run's options
  restore("loss_scale", loss_scale_.scale);
  restore("good_steps_at_loss_scale", loss_scale_.good_steps);
}

void Trainer::start(TrainerHooks hooks) {
  hooks_ = std::move(hooks);
  if (const auto& rollback = options_.rollback) {
    for (const models::SampleRange& range : rollback->left_out) samples_->leave_out(range);
    bad_steps_.state().row = rollback->bad_steps;
  }
  if (parts_.checkpointer != nullptr) parts_.checkpointer->start(step_);
  // Evaluation and sample that the previous run left undone, if this run has them enabled.
  const bool trains = options_.steps > 0;
  sample_follows_ = sample_follows_ && trains && parts_.writer != nullptr;
  evaluation_follows_ = evaluation_follows_ && trains && options_.eval_every > 0 && evaluates();
  if (!trains) return evaluate();
  follow_up();
}

void Trainer::finish() {
  when_stored([this] {
    if (parts_.checkpointer == nullptr) return hooks_.done();
    parts_.checkpointer->finish(rollback_ ? std::nullopt : std::optional(step_), hooks_.done);
  });
}

void Trainer::when_stored(runtime::Handler then) {
  if (optimizing_ == 0) return then();
  stored_ = std::move(then);
}

runtime::Handler Trainer::stepped() {
  ++optimizing_;
  return [this] {
    if (--optimizing_ == 0 && stored_) std::exchange(stored_, nullptr)();
  };
}

void Trainer::begin_step() {
  if (step_ >= options_.steps) return finish();
  // Runs after evaluation and sample of the previous step were reported.
  if (const int series = checkpoint_series(); series > 0) parts_.checkpointer->take(series, step_);
  ++step_;
  context_->trace.set_activity(SpanKind::step, step_);
  began_ = context_->trace.now();
  phases_missing_ = 2;
  pass_seconds_before_ = pass_seconds();
  split_timing_.begin_step();
  parts_.optimizer.begin(adamw_of_step(1.0));
  const std::int64_t row_samples = options_.batch_size / options_.grid.g_data;
  parts_.gradients.start(microbatches_of(options_), [this] { phase_done(); });
  if (fault_.before_passes(step_)) return;
  const std::int64_t losses = samples_->losses(next_sample_, options_.batch_size);
  has_losses_ = losses > 0;
  parts_.stage.run({.step = step_,
                    .seed = options_.seed,
                    .first_sample = next_sample_ + plan_->position.row * row_samples,
                    .samples = static_cast<int>(row_samples),
                    .training = true,
                    .loss_factor = models::mean_factor(losses),
                    .loss_scale = static_cast<float>(loss_scale_.scale)},
                   [this](double loss) {
                     row_loss_ = loss * fault_.loss_factor(step_);
                     passes_done_ = context_->trace.now();
                     phase_done();
                   });
}

void Trainer::phase_done() {
  if (--phases_missing_ > 0) return;
  split_timing_.end_step();
  agreement_.reset(split_timing_.numbers(step_));
  ExactSum squares;
  for (std::size_t u = 0; u < plan_->gives_squares.size(); ++u) {
    if (plan_->gives_squares[u]) squares.add(parts_.gradients.sum_of_squares(u));
  }
  squares.write(agreement_.squares());
  agreement_.losses()[static_cast<std::size_t>(plan_->position.row)] = row_loss_;
  if (parts_.checkpointer != nullptr) agreement_.checkpoint() = parts_.checkpointer->wish(step_);
  agreement_.stop() = stop_requested_ ? 1 : 0;
  if (const std::span<double> seconds = agreement_.pass_seconds(); !seconds.empty())
    seconds[static_cast<std::size_t>(plan_->rank)] = pass_seconds() - pass_seconds_before_;
  if (const std::span<double> seconds = agreement_.layer_seconds(); !seconds.empty()) split_timing_.add_to(seconds);
  parts_.consensus.agree(agreement_.numbers(), [this] { conclude_step(); });
}

void Trainer::conclude_step() {
  context_->trace.add(SpanKind::wait, Trace::Lane::loop, passes_done_, context_->trace.now(),
                      static_cast<int>(step_));
  StepResult result{.step = step_, .has_losses = has_losses_, .loss_scale = loss_scale_.scale};
  const double squares = ExactSum::read(agreement_.squares());
  for (const double loss : agreement_.losses()) result.loss += loss;
  result.gradient_norm = std::sqrt(squares) / loss_scale_.scale;
  result.learning_rate = learning_rate(options_.learning_rate, step_);
  const bool finite = std::isfinite(result.gradient_norm);
  // A smaller loss scale helps only where one is used, and only if the forward pass itself did not overflow.
  const bool scale_helps = loss_scale_.dynamic && loss_scale_.scale > 1 && std::isfinite(result.loss);
  if (finite ? has_losses_ : !scale_helps) result.bad = bad_steps_.judge(step_, result.loss, result.gradient_norm);
  if (result.bad && result.bad->action == BadStepOptions::Action::stop) {
    if (hooks_.step) hooks_.step(result);
    fail(ErrorCode::numeric, "step {}: {}", step_, describe_end(*result.bad, options_.bad_steps));
  }
  result.skipped = !finite || result.bad;
  if (result.skipped) {
    ++skips_;
    parts_.optimizer.skip(stepped());
  } else {
    // The small addend is PyTorch's, so that a clipped step is the same there.
    const double factor = options_.clip > 0 ? std::min(1.0, options_.clip / (result.gradient_norm + 1e-6)) : 1.0;
    parts_.optimizer.step(adamw_of_step(factor), stepped());
    ++applied_steps_;
  }
  result.skips = skips_;
  loss_scale_.update(!finite);
  if (result.bad && result.bad->action == BadStepOptions::Action::rollback) {
    roll_back();
    models::FilteredSamples without = *samples_;  // a copy, since other threads may read ahead
    for (std::int64_t n = next_sample_; n < next_sample_ + options_.batch_size; ++n)
      without.leave_out({samples_->number(n), 1});
    rollback_->left_out = without.left_out();
  }
  next_sample_ += options_.batch_size;
  stopped_early_ = agreement_.stop() > 0 && step_ < options_.steps;
  result.compute_seconds.assign(agreement_.pass_seconds().begin(), agreement_.pass_seconds().end());
  if (const std::span<double> seconds = agreement_.layer_seconds(); !seconds.empty())
    result.split = split_timing_.advice(seconds);
  const auto due = [&](std::int64_t every) {
    return every > 0 && !rollback_ && (step_ % every == 0 || step_ == options_.steps);
  };
  evaluation_follows_ = due(options_.eval_every) && evaluates();
  sample_follows_ = due(options_.sample.every);
  result.evaluation_follows = evaluation_follows_ && !stopped_early_;
  result.sample_follows = sample_follows_ && !stopped_early_;
  trace_since_began(SpanKind::step);
  if (hooks_.step) hooks_.step(result);
  if (rollback_) return finish();
  const bool ends = stopped_early_ || step_ == options_.steps;
  compared_ = false;
  if (parts_.replicas != nullptr && (ends || step_ % options_.check_every == 0 || checkpoint_series() > 0))
    return check_replicas();
  go_on();
}

double Trainer::pass_seconds() const {
  const Trace& trace = context_->trace;
  return trace.seconds(SpanKind::forward) + trace.seconds(SpanKind::backward) + trace.seconds(SpanKind::weights);
}

void Trainer::check_replicas() {
  if (parts_.replicas == nullptr || compared_) return go_on();
  when_stored([this] {
    context_->trace.set_activity(SpanKind::check, step_);
    began_ = context_->trace.now();
    const auto check = [this] {
      parts_.replicas->run(step_, [this](const ReplicaReport& report) { checked(report); });
    };
    if (const auto damaged = fault_.damage(step_)) return parts_.replicas->damage(*damaged, check);
    check();
  });
}

void Trainer::checked(const ReplicaReport& report) {
  trace_since_began(SpanKind::check);
  compared_ = true;
  std::optional<BadStepOptions::Action> follows;
  if (!report.damage.empty()) follows = bad_steps_.damaged(step_);
  if (hooks_.checked) hooks_.checked(report, follows);
  if (!follows) return go_on();
  if (follows == BadStepOptions::Action::stop) {
    fail(ErrorCode::numeric,
         "step {}: replica mismatch: {}; test the memory and processors of these machines, then resume from a "
         "checkpoint{}",
         step_, describe(report.damage.front(), options_.grid),
         options_.bad_steps.action == BadStepOptions::Action::rollback ? "" : ", or use `bad_steps` rollback");
  }
  roll_back();
  finish();
}

void Trainer::go_on() {
  if (stopped_early_) return finish();
  follow_up();
}

bool Trainer::evaluates() const { return parts_.evaluation != nullptr && parts_.evaluation->any(); }

void Trainer::follow_up() {
  if (evaluation_follows_) return evaluate();
  if (sample_follows_) return write_sample();
  begin_step();
}

void Trainer::roll_back() {
  rollback_ =
      Rollback{.newest_step = step_ - 1, .left_out = samples_->left_out(), .bad_steps = bad_steps_.state().row};
}

int Trainer::checkpoint_series() {
  if (agreement_.numbers().empty()) return 0;  // before the first step
  return static_cast<int>(agreement_.checkpoint());
}

void Trainer::trace_since_began(SpanKind kind) {
  const auto now = context_->trace.now();
  context_->trace.add(kind, Trace::Lane::steps, std::exchange(began_, now), now, static_cast<int>(step_));
}

runtime::UpdateOptions Trainer::adamw_of_step(double factor) const {
  runtime::UpdateOptions adamw = options_.adamw;
  adamw.learning_rate = learning_rate(options_.learning_rate, step_);
  adamw.muon_rate = muon_rate(options_.learning_rate);
  adamw.step = applied_steps_ + 1;
  adamw.gradient_scale = factor / loss_scale_.scale;
  adamw.rounding.key = runtime::philox_key(options_.seed, runtime::RandomPurpose::rounding);
  return adamw;
}

void Trainer::stop_early() {
  stopped_early_ = true;
  check_replicas();
}

void Trainer::evaluate() {
  context_->trace.set_activity(SpanKind::validation, step_);
  began_ = context_->trace.now();
  parts_.evaluation->run(step_, [this](const EvaluationResult* result) {
    if (result == nullptr) return stop_early();
    trace_since_began(SpanKind::validation);
    if (hooks_.evaluation) hooks_.evaluation(*result);
    evaluation_follows_ = false;
    follow_up();
  });
}

void Trainer::write_sample() {
  context_->trace.set_activity(SpanKind::sampling, step_);
  parts_.writer->run(step_, [this](std::optional<std::span<const std::int32_t>> tokens) {
    if (!tokens) return stop_early();
    trace_since_began(SpanKind::sampling);
    if (hooks_.sample) hooks_.sample(step_, *tokens);
    sample_follows_ = false;
    follow_up();
  });
}

}  // namespace ranvier::actors
