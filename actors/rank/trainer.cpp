#include "actors/rank/trainer.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

namespace {

// Layout of what ranks agree on after a batch: [units and their pieces: Σ gradient²][rows: loss][wish to stop].
std::size_t loss_offset(std::size_t squares) { return squares; }
std::size_t stop_offset(std::size_t squares, int rows) { return squares + static_cast<std::size_t>(rows); }

}  // namespace

Trainer::Trainer(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                 const models::Architecture& architecture, const models::SampleSource& source,
                 const models::SampleSource* validation, const TrainerOptions& options, RankPlan plan)
    : loop_(&loop),
      device_(&device),
      source_(&source),
      validation_(validation),
      options_(options),
      plan_(std::move(plan)),
      unit_count_(architecture.units().size()),
      trace_(plan_.rank),
      compute_(device.make_stream("compute", runtime::StreamWidth::whole)),
      reduce_(device.make_stream("reduce", runtime::StreamWidth::one)),
      gather_(device.make_stream("gather", runtime::StreamWidth::one)),
      load_(device.make_stream("load", runtime::StreamWidth::one)),
      arena_(device, plan_.memory),
      tiers_(loop, device, plan_.tiers, options.tiers.files, arena_, plan_.rank),
      executor_(loop, transport, *reduce_),
      load_places_(device),
      context_{loop, transport, device, trace_, arena_, tiers_, executor_, *compute_, *reduce_, *gather_, *load_},
      loader_(loop, *load_, load_places_, source, options.batch_size),
      consensus_(loop, transport),
      loss_scale_(options.loss_scale) {
  load_places_.inputs.reserve(plan_.staged_samples.input_bytes, plan_.staged_samples.inputs);
  load_places_.targets.reserve(plan_.staged_samples.target_bytes, plan_.staged_samples.targets);
  plan_.stage->bind(arena_);
  plan_.states->bind(arena_);
  if (options.tiers.parameters != TierKind::device) {
    parameter_tier_ = std::make_unique<ParameterTier>(loop, tiers_, *gather_, *plan_.states,
                                                      plan_.parameter_tier_memory, arena_);
  }
  parameters_ = std::make_unique<ParameterStore>(context_, transport, *gather_, parameter_tier_.get(),
                                                 *plan_.stage, *plan_.states, *plan_.column, plan_.flow, trace_, plan_.parameter_options,
                                                 plan_.parameter_memory, arena_);
  if (options.tiers.gradients != TierKind::device) {
    gradients_ = std::make_unique<GradientRecords>(context_, plan_, plan_.gradient_records);
  }
  sync_ = std::make_unique<GradientSync>(context_, plan_, plan_.gradients, gradients_.get());
  optimizer_ = std::make_unique<Optimizer>(context_, plan_, plan_.optimizer, *parameters_, parameter_tier_.get(),
                                           gradients_.get());
  sync_->when_reduced([this](std::size_t chunk) { optimizer_->reduced(chunk); });
  checkpoints_ = std::make_unique<ActivationTier>(loop, tiers_, *plan_.stage, plan_.checkpoint_memory);
  const int stage = plan_.position.stage;
  const int stages = options_.grid.g_inter;
  StageActor::Neighbours neighbours{.stage = stage, .stages = stages};
  if (stage > 0) neighbours.left = plan_.pipeline[static_cast<std::size_t>(stage - 1)];
  if (stage + 1 < stages) neighbours.right = plan_.pipeline[static_cast<std::size_t>(stage + 1)];
  const int microbatch = std::min(options_.microbatch_size, options_.batch_size / options_.grid.g_data);
  const auto make_actor = [&](Loader& loader) {
    return std::make_unique<StageActor>(loop, transport, *compute_, *plan_.stage, loader, *parameters_, *sync_,
                                        *checkpoints_, trace_, neighbours, plan_.policy, microbatch);
  };
  stage_actor_ = make_actor(loader_);
  const GridPass::Parts parts{.loop = &loop,
                              .load = *load_,
                              .places = &load_places_,
                              .consensus = &consensus_,
                              .make_actor = make_actor,
                              .wishes_to_stop = [this] { return stop_requested_; }};
  const bool last = plan_.stage->last();
  if (validation_ != nullptr) validation_pass_ = std::make_unique<GridPass>(parts, *validation_, options_.batch_size);
  if (options_.choices) {
    choice_scorer_ = std::make_unique<ChoiceScorer>(
        parts, options_.choices,
        ChoiceScorer::Options{.batch_size = options_.batch_size,
                              .rows = options_.grid.g_data,
                              .row = plan_.position.row,
                              .positions = architecture.positions,
                              .losses = last ? arena_.slot_as<double>(plan_.choice_losses) : nullptr});
  }
  if (options_.sample.every > 0) {
    sample_writer_ = std::make_unique<SampleWriter>(
        parts, options_.sample,
        SampleWriter::Stage{.positions = architecture.positions,
                            .draws = last && plan_.position.row == 0,
                            .logits = last ? arena_.slot_as<float>(plan_.sample_logits) : nullptr,
                            .vocabulary = plan_.stage->vocabulary()});
  }
  // A tied unit's partner that comes first in the pipeline counts it; of several copies of a piece, the first row's.
  const auto& layout = plan_.column->layout;
  const collectives::Scope reduced = plan_.flow.reduced;
  const auto pieces = static_cast<std::size_t>(layout.pieces(reduced));
  squares_ = unit_count_ * pieces;
  bool first_copy = true;
  for (int row = 0; row < plan_.position.row; ++row) {
    first_copy = first_copy && layout.piece(reduced, row) != layout.piece(reduced);
  }
  for (std::size_t u = 0; u < plan_.states->all().size(); ++u) {
    const auto& partner = plan_.gradients.tied.options.partners[u];
    const bool counts = first_copy && (!partner || plan_.rank < *partner);
    square_place_.push_back(counts ? std::optional(plan_.states->all()[u].global_index * pieces +
                                                   static_cast<std::size_t>(layout.piece(reduced)))
                                   : std::nullopt);
  }
}

Trainer::~Trainer() {
  // What is queued uses the arena.
  for (auto* stream : {load_.get(), gather_.get(), reduce_.get(), compute_.get()}) {
    try {
      stream->synchronize();
    } catch (const std::exception&) {  // reported through Device::on_failure already
    }
  }
}

void Trainer::load_weights(const WeightSource& weights) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  runtime::Buffer host = device_->allocate(piece * sizeof(float), runtime::MemorySpace::pinned);
  auto* values = reinterpret_cast<float*>(host.data());
  // A rank asks for its parts only: the whole model is nowhere (ZeRO-Infinity §7.2).
  const auto fill = [&](const UnitState& unit, const UnitPart& part) {
    const std::size_t end = std::min(part.range.begin + part.range.count, unit.spec->elements());
    for (std::size_t begin = part.range.begin; begin < end; begin += piece) {
      const std::size_t count = std::min(piece, end - begin);
      weights(*unit.spec, begin, {values, count});
      runtime::cast(*compute_, part.at(begin), part.dtype, values, runtime::DType::f32, count);
      compute_->synchronize();
    }
  };
  for (const UnitState& unit : plan_.states->all()) {
    if (unit.parameters.data != nullptr) fill(unit, unit.parameters);
  }
  weights_ = weights;
}

void Trainer::read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  const StateArray weights{unit, "weights", plan_.states->all()[unit].optimizer, runtime::DType::f32};
  optimizer_->read_state(weights, begin, std::as_writable_bytes(out), std::move(done));
}

void Trainer::start(TrainerHooks hooks) {
  hooks_ = std::move(hooks);
  const auto load_states = [this] {
    parameters_->start();
    const auto begin = [this] {
      if (options_.steps > 0) return begin_step();
      evaluate();
    };
    const WeightSource weights = std::exchange(weights_, nullptr);
    if (!plan_.states->separate_master()) return loop_->post(begin);  // layers' own are the only ones
    fill_state(*loop_, *optimizer_, "weights", *plan_.states, weights, begin);
  };
  if (!parameter_tier_) return load_states();
  parameter_tier_->load(weights_, *compute_, load_states);
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

std::vector<std::string> Trainer::running() const {
  std::vector<std::string> all = parameters_->running();
  for (const Part* part : {static_cast<const Part*>(sync_.get()), static_cast<const Part*>(optimizer_.get())}) {
    for (Wait& wait : part->waits()) all.push_back(std::move(wait.what));
  }
  return all;
}

void Trainer::begin_step() {
  if (step_ == options_.steps) return finish();
  ++step_;
  trace_.set_activity(SpanKind::step, step_);
  began_ = Trace::Clock::now();
  const auto& fault = options_.fault;
  const bool faulty = fault && fault->rank == plan_.rank && fault->step == step_;
  if (faulty && fault->kind == TrainerOptions::Fault::Kind::throws) {
    fail(ErrorCode::internal, "fault injected at step {}", step_);
  }
  if (faulty && fault->kind == TrainerOptions::Fault::Kind::hangs) return;

  phases_missing_ = 2;
  optimizer_->begin(adamw_of_step(1.0));
  const std::int64_t row_samples = options_.batch_size / options_.grid.g_data;
  const std::int64_t microbatch = std::min<std::int64_t>(options_.microbatch_size, row_samples);
  sync_->start(static_cast<int>((row_samples + microbatch - 1) / microbatch), [this] { phase_done(); });
  if (faulty && fault->kind == TrainerOptions::Fault::Kind::overflow) sync_->spoil();
  stage_actor_->run({.step = step_,
                     .seed = options_.seed,
                     .first_sample = (step_ - 1) * options_.batch_size + plan_.position.row * row_samples,
                     .samples = static_cast<int>(row_samples),
                     .training = true,
                     .loss_factor = 1.0 / (static_cast<double>(options_.batch_size) *
                                           static_cast<double>(source_->losses_per_sample())),
                     .loss_scale = static_cast<float>(loss_scale_.scale)},
                    [this](double loss) {
                      row_loss_ = loss;
                      passes_done_ = Trace::Clock::now();
                      phase_done();
                    });
}

void Trainer::phase_done() {
  if (--phases_missing_ > 0) return;
  agreed_.assign(stop_offset(squares_, options_.grid.g_data) + 1, 0.0);
  for (std::size_t u = 0; u < square_place_.size(); ++u) {
    if (square_place_[u]) agreed_[*square_place_[u]] = sync_->sum_of_squares(u);
  }
  agreed_[loss_offset(squares_) + static_cast<std::size_t>(plan_.position.row)] = row_loss_;
  agreed_.back() = stop_requested_ ? 1 : 0;
  consensus_.agree(agreed_, [this] { conclude_step(); });
}

void Trainer::conclude_step() {
  trace_.add(SpanKind::wait, Trace::Lane::loop, passes_done_, Trace::Clock::now(), static_cast<int>(step_));
  StepResult result{.step = step_, .loss_scale = loss_scale_.scale};
  double squares = 0;
  for (std::size_t u = 0; u < squares_; ++u) squares += agreed_[u];
  for (int row = 0; row < options_.grid.g_data; ++row) {
    result.loss += agreed_[loss_offset(squares_) + static_cast<std::size_t>(row)];
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
    optimizer_->skip(stepped());
  } else {
    // The small addend is PyTorch's, so that a clipped step is the same there.
    const double factor = options_.clip > 0 ? std::min(1.0, options_.clip / (result.gradient_norm + 1e-6)) : 1.0;
    optimizer_->step(adamw_of_step(factor), stepped());
    ++applied_steps_;
  }
  result.skips = skips_;
  loss_scale_.update(result.skipped);
  stopped_early_ = agreed_.back() > 0 && step_ < options_.steps;
  const auto due = [&](std::int64_t every) {
    return every > 0 && !stopped_early_ && (step_ % every == 0 || step_ == options_.steps);
  };
  result.evaluation_follows =
      due(options_.eval_every) && (validates() || choice_scorer_);
  result.sample_follows = due(options_.sample.every);
  trace_since_began(SpanKind::step);
  if (hooks_.step) hooks_.step(result);
  after_step(result);
}

void Trainer::trace_since_began(SpanKind kind) {
  const auto now = Trace::Clock::now();
  trace_.add(kind, Trace::Lane::steps, std::exchange(began_, now), now, static_cast<int>(step_));
}

runtime::AdamWOptions Trainer::adamw_of_step(double factor) const {
  runtime::AdamWOptions adamw = options_.adamw;
  adamw.learning_rate = learning_rate(options_.learning_rate, step_);
  adamw.step = applied_steps_ + 1;
  adamw.gradient_scale = factor / loss_scale_.scale;
  return adamw;
}

void Trainer::after_step(const StepResult& result) {
  if (stopped_early_) return finish();
  sample_follows_ = result.sample_follows;
  if (!result.evaluation_follows) return write_sample();
  evaluate();
}

bool Trainer::stops(bool wished) {
  if (!wished) return false;
  stopped_early_ = true;
  finish();
  return true;
}

void Trainer::evaluate() {
  trace_.set_activity(SpanKind::validation, step_);
  began_ = Trace::Clock::now();
  evaluation_ = {.step = step_};
  if (!validates()) return score_choices();
  evaluation_.loss = 0;
  evaluation_.samples = options_.eval_samples;
  evaluation_.losses = options_.eval_samples * validation_->losses_per_sample();
  evaluate_from(0);
}

void Trainer::evaluate_from(std::int64_t first) {
  // The last batch may be smaller. Its samples are spread over the rows, which all run as many microbatches: they may
  // gather parameters together.
  const std::int64_t samples = std::min<std::int64_t>(options_.batch_size, options_.eval_samples - first);
  if (samples <= 0) return score_choices();
  const std::int64_t rows = options_.grid.g_data, of_row = (samples + rows - 1) / rows;
  const std::int64_t row_first = std::min(samples, plan_.position.row * of_row);
  validation_pass_->run(
      {.step = step_,
       .seed = options_.seed,
       .first_sample = first + row_first,
       .samples = static_cast<int>(of_row),
       .loss_factor = 1.0 / static_cast<double>(evaluation_.losses),
       .counted = static_cast<int>(std::min(of_row, samples - row_first))},
      static_cast<std::size_t>(rows),
      [this](double loss, std::span<double> of_rows) { of_rows[static_cast<std::size_t>(plan_.position.row)] = loss; },
      [this, first, samples](std::span<const double> of_rows, bool stop) {
        if (stops(stop)) return;
        evaluation_.loss = std::accumulate(of_rows.begin(), of_rows.end(), *evaluation_.loss);
        evaluate_from(first + samples);
      });
}

void Trainer::score_choices() {
  if (!choice_scorer_) return evaluated();
  choice_scorer_->run(step_, [this](std::optional<double> accuracy) {
    if (stops(!accuracy)) return;
    evaluation_.accuracy = accuracy;
    evaluated();
  });
}

void Trainer::evaluated() {
  trace_since_began(SpanKind::validation);
  if (hooks_.evaluation) hooks_.evaluation(evaluation_);
  write_sample();
}

void Trainer::write_sample() {
  if (!sample_follows_) return begin_step();
  trace_.set_activity(SpanKind::sampling, step_);
  sample_writer_->run(step_, [this](std::optional<std::span<const std::int32_t>> tokens) {
    if (stops(!tokens)) return;
    trace_since_began(SpanKind::sampling);
    if (hooks_.sample) hooks_.sample(step_, *tokens);
    begin_step();
  });
}

}  // namespace ranvier::actors
