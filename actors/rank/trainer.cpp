#include "actors/rank/trainer.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

namespace {

// Layout of what ranks agree on after a batch: [units and their pieces: Σ gradient²][rows: loss][wish to stop].
std::size_t loss_offset(std::size_t squares) { return squares; }
std::size_t stop_offset(std::size_t squares, int rows) { return squares + static_cast<std::size_t>(rows); }

}  // namespace

Trainer::Trainer(const RankContext& context, const RankPlan& plan, const models::SampleSource& source,
                 const Parts& parts)
    : context_(&context),
      plan_(&plan),
      options_(plan.options),
      source_(&source),
      parts_(parts),
      loss_scale_(plan.options.loss_scale) {
  parts_.gradients.when_reduced([this](std::size_t chunk) { parts_.optimizer.reduced(chunk); });
}

void Trainer::start(TrainerHooks hooks) {
  hooks_ = std::move(hooks);
  if (options_.steps > 0) return begin_step();
  evaluate();
}

void Trainer::finish() {
  finished_ = true;
  if (optimizing_ == 0) hooks_.done();
}

runtime::Handler Trainer::stepped() {
  ++optimizing_;
  return [this] {
    if (--optimizing_ == 0 && finished_) hooks_.done();
  };
}

bool Trainer::inject_fault() {
  using Kind = TrainerOptions::Fault::Kind;
  const auto& fault = options_.fault;
  if (!fault || fault->rank != plan_->rank || fault->step != step_) return false;
  switch (fault->kind) {
    case Kind::throws:
      fail(ErrorCode::internal, "fault injected at step {}", step_);
    case Kind::hangs:
      return true;
    case Kind::overflow:
      parts_.gradients.spoil();
      return false;
    case Kind::stream:
      context_->compute.launch([](runtime::ComputePool&) {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      });
      return false;
    case Kind::file:
      if (!context_->tiers.lose_next_request())
        fail(ErrorCode::usage,
             "no state lives in files, so none can be lost: add --offload infinity-nvme and --nvme");
      return false;
  }
  return false;
}

void Trainer::begin_step() {
  if (step_ == options_.steps) return finish();
  ++step_;
  context_->trace.set_activity(SpanKind::step, step_);
  began_ = context_->trace.now();
  phases_missing_ = 2;
  parts_.optimizer.begin(adamw_of_step(1.0));
  const std::int64_t row_samples = options_.batch_size / options_.grid.g_data;
  const std::int64_t microbatch = std::min<std::int64_t>(options_.microbatch_size, row_samples);
  parts_.gradients.start(static_cast<int>((row_samples + microbatch - 1) / microbatch), [this] { phase_done(); });
  if (inject_fault()) return;
  parts_.stage.run({.step = step_,
                    .seed = options_.seed,
                    .first_sample = (step_ - 1) * options_.batch_size + plan_->position.row * row_samples,
                    .samples = static_cast<int>(row_samples),
                    .training = true,
                    .loss_factor = 1.0 / (static_cast<double>(options_.batch_size) *
                                          static_cast<double>(source_->losses_per_sample())),
                    .loss_scale = static_cast<float>(loss_scale_.scale)},
                   [this](double loss) {
                     row_loss_ = loss;
                     passes_done_ = context_->trace.now();
                     phase_done();
                   });
}

void Trainer::phase_done() {
  if (--phases_missing_ > 0) return;
  agreed_.assign(stop_offset(plan_->squares, options_.grid.g_data) + 1, 0.0);
  for (std::size_t u = 0; u < plan_->square_places.size(); ++u) {
    if (const auto place = plan_->square_places[u]) agreed_[*place] = parts_.gradients.sum_of_squares(u);
  }
  agreed_[loss_offset(plan_->squares) + static_cast<std::size_t>(plan_->position.row)] = row_loss_;
  agreed_.back() = stop_requested_ ? 1 : 0;
  parts_.consensus.agree(agreed_, [this] { conclude_step(); });
}

void Trainer::conclude_step() {
  context_->trace.add(SpanKind::wait, Trace::Lane::loop, passes_done_, context_->trace.now(),
                      static_cast<int>(step_));
  StepResult result{.step = step_, .loss_scale = loss_scale_.scale};
  double squares = 0;
  for (std::size_t u = 0; u < plan_->squares; ++u) squares += agreed_[u];
  for (int row = 0; row < options_.grid.g_data; ++row) {
    result.loss += agreed_[loss_offset(plan_->squares) + static_cast<std::size_t>(row)];
  }
  result.gradient_norm = std::sqrt(squares) / loss_scale_.scale;
  result.learning_rate = learning_rate(options_.learning_rate, step_);
  const bool finite = std::isfinite(result.gradient_norm);
  // A smaller loss scale helps only where one is used, and only if the forward pass itself did not overflow.
  const bool scale_helps = loss_scale_.dynamic && loss_scale_.scale > 1 && std::isfinite(result.loss);
  if (!finite && !scale_helps) {
    fail(ErrorCode::numeric,
         "step {}: the gradient's norm is {} at loss {}: lower --learning-rate, or use --precision fp32 or bf16",
         step_, result.gradient_norm, result.loss);
  }
  result.skipped = !finite;
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
  loss_scale_.update(result.skipped);
  stopped_early_ = agreed_.back() > 0 && step_ < options_.steps;
  const auto due = [&](std::int64_t every) {
    return every > 0 && !stopped_early_ && (step_ % every == 0 || step_ == options_.steps);
  };
  result.evaluation_follows = due(options_.eval_every) && parts_.evaluation != nullptr && parts_.evaluation->any();
  result.sample_follows = due(options_.sample.every);
  trace_since_began(SpanKind::step);
  if (hooks_.step) hooks_.step(result);
  if (stopped_early_) return finish();
  sample_follows_ = result.sample_follows;
  if (result.evaluation_follows) return evaluate();
  write_sample();
}

void Trainer::trace_since_began(SpanKind kind) {
  const auto now = context_->trace.now();
  context_->trace.add(kind, Trace::Lane::steps, std::exchange(began_, now), now, static_cast<int>(step_));
}

runtime::AdamWOptions Trainer::adamw_of_step(double factor) const {
  runtime::AdamWOptions adamw = options_.adamw;
  adamw.learning_rate = learning_rate(options_.learning_rate, step_);
  adamw.step = applied_steps_ + 1;
  adamw.gradient_scale = factor / loss_scale_.scale;
  return adamw;
}

void Trainer::stop_early() {
  stopped_early_ = true;
  finish();
}

void Trainer::evaluate() {
  context_->trace.set_activity(SpanKind::validation, step_);
  began_ = context_->trace.now();
  parts_.evaluation->run(step_, [this](const EvaluationResult* result) {
    if (result == nullptr) return stop_early();
    trace_since_began(SpanKind::validation);
    if (hooks_.evaluation) hooks_.evaluation(*result);
    write_sample();
  });
}

void Trainer::write_sample() {
  if (!sample_follows_) return begin_step();
  context_->trace.set_activity(SpanKind::sampling, step_);
  parts_.writer->run(step_, [this](std::optional<std::span<const std::int32_t>> tokens) {
    if (!tokens) return stop_early();
    trace_since_began(SpanKind::sampling);
    if (hooks_.sample) hooks_.sample(step_, *tokens);
    begin_step();
  });
}

}  // namespace ranvier::actors
