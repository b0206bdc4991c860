#include "actors/optimizer/optimizer.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::BucketPass;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Trace;

namespace {

constexpr std::size_t gathered_bundles = 2;   // one arrives while the other one is stepped
constexpr std::size_t refreshed_bundles = 3;  // one is stepped, one gathered, one stored

std::size_t gradient_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  return unit.cut.elements(unit.optimizer, bucket.index) * runtime::size_of(states.precision().gradient);
}

std::size_t parameter_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  return unit.cut.elements(unit.parameters.range, bucket.index) * runtime::size_of(states.precision().compute);
}

}  // namespace

Optimizer::Memory Optimizer::plan(const UnitStates& states, const ColumnOptions& column,
                                  const collectives::ShardFlow& flow, const ChunkSchedule& chunks,
                                  const Options& options, offload::TierPlan& tiers, runtime::MemoryPlan& plan) {
  Memory memory;
  std::vector<std::vector<HopPipeline::PartShape>> shapes;
  std::size_t gathered = 0, refreshed = 0;
  for (const ChunkSchedule::Bundle& bundle : chunks.bundles) {
    auto& parts = shapes.emplace_back();
    std::size_t gradients = 0, parameters = 0;
    for (const ChunkSchedule::Bucket& bucket : bundle.buckets) {
      const UnitState& unit = states.all()[bucket.unit];
      parts.push_back({unit.elements, unit.cut.slice(bucket.index).count});
      gradients += gradient_bytes(states, bucket);
      parameters += parameter_bytes(states, bucket);
    }
    gathered = std::max(gathered, gradients);
    refreshed = std::max(refreshed, parameters);
  }
  const auto add_places = [&](const std::string& name, std::size_t bytes, std::size_t count) {
    return plan.add({MemoryKind::workspace, MemorySpace::device, name, bytes, count});
  };
  const bool gathers = !flow.gather_gradient.empty() || !states.gradients_on_device();
  memory.gradient_place_count = gathers ? std::min(gathered_bundles, shapes.size()) : 0;
  memory.gradient_places = add_places("gradients for the optimizer", gathered, memory.gradient_place_count);
  memory.gradient = HopPipeline::plan(column, flow.gather_gradient, shapes, states.precision().gradient,
                                      "gradients for the optimizer", plan);
  memory.parameter_place_count = states.parameters_on_device() ? 0 : std::min(refreshed_bundles, shapes.size());
  memory.parameter_places = add_places("parameters being refreshed", refreshed, memory.parameter_place_count);
  memory.states = StateTier::plan(states, options.tiers, tiers, plan);
  std::size_t buckets = 0;
  for (const ChunkSchedule::Bundle& bundle : chunks.bundles) buckets += bundle.buckets.size();
  if (options.tiers.step == StepPlace::host) {
    memory.host_step = HostStep::plan(states, std::min(options.tiers.depth, buckets), plan);
  }
  memory.refresh =
      HopPipeline::plan(column, flow.refresh, shapes, states.precision().compute, "refreshed parameters", plan);
  return memory;
}

Optimizer::Optimizer(runtime::EventLoop& loop, offload::Tiers& tiers, collectives::Executor& executor,
                     runtime::StreamView compute, const UnitStates& states, const ColumnOptions& column,
                     const collectives::ShardFlow& flow, const ChunkSchedule& chunks, ParameterStore& parameters,
                     ParameterRecords* parameter_tier, GradientTier* gradient_tier, Trace& trace, const Options& options,
                     const Memory& memory, const runtime::Arena& arena)
    : loop_(&loop),
      compute_(compute),
      states_(&states),
      column_(&column),
      chunks_(&chunks),
      parameters_(&parameters),
      parameter_tier_(parameter_tier),
      gradient_tier_(gradient_tier),
      trace_(&trace),
      states_tier_(loop, tiers, compute, states, options.tiers, memory.states, arena),
      gradient_(loop, executor, column, flow.gather_gradient, states.precision().gradient, 4, memory.gradient, arena),
      refresh_(loop, executor, column, flow.refresh, states.precision().compute, 5, memory.refresh, arena),
      every_step_counts_(options.every_step_counts),
      flips_(options.tiers.commit == Commit::flip),
      gathers_gradients_(!flow.gather_gradient.empty() || gradient_tier != nullptr),
      refreshes_(!flow.refresh.empty()),
      in_stream_order_(!refreshes_ && !parameters.gathers() && !memory.host_step) {
  if (memory.host_step) {
    host_step_ = std::make_unique<HostStep>(loop, compute.device(), states, *memory.host_step, arena);
  }
  for (std::size_t p = 0; p < memory.gradient_place_count; ++p) {
    free_gradient_places_.push_back(arena.slot(memory.gradient_places, p));
  }
  for (std::size_t p = 0; p < memory.parameter_place_count; ++p) {
    free_parameter_places_.push_back(arena.slot(memory.parameter_places, p));
  }
  for (const UnitState& unit : states.all()) buckets_missing_.push_back(unit.cut.buckets());
  expect(!flips_ || !every_step_counts_, "spare copies of states where every step counts");
  plan_rounds(options);
}

void Optimizer::plan_rounds(const Options& options) {
  const auto plan = [&](Round& round, const std::vector<std::size_t>& order, offload::Counting counting,
                        offload::BucketStages stages) {
    for (const std::size_t b : order) {
      round.bundles.push_back({.buckets = chunks_->bundles[b].buckets, .first = round.buckets.size()});
      std::size_t gradients = 0, own_parameters = 0;
      for (const Bucket& bucket : round.bundles.back().buckets) {
        round.buckets.push_back({bucket, round.bundles.size() - 1, gradients, own_parameters});
        gradients += gradient_bytes(*states_, bucket);
        own_parameters += parameter_bytes(*states_, bucket);
      }
    }
    const std::size_t buckets = round.buckets.size();
    const bool on_device = options.tiers.optimizer == TierKind::device;
    round.pipeline = std::make_unique<offload::BucketPipeline>(
        *loop_,
        offload::BucketPipelineOptions{
            .buckets = buckets,
            .depth = std::max<std::size_t>(1, on_device ? buckets : std::min(options.tiers.depth, buckets)),
            .counting = counting},
        std::move(stages));
  };
  using Copy = StateTier::Copy;
  using offload::Counting;
  std::vector<std::size_t> as_reduced(chunks_->bundles.size());
  std::iota(as_reduced.begin(), as_reduced.end(), std::size_t{0});
  const auto is_ahead = [this](const BucketPass& pass) {
    const auto& [u, index] = steps_.buckets[pass.bucket].bucket;
    return flips_ && is_ahead_[u][index];
  };
  plan(steps_, every_step_counts_ ? as_reduced : chunks_->from_the_front(),
       every_step_counts_ || flips_ ? Counting::always : Counting::on_answer,
       {.fetch =
            [this, is_ahead](const BucketPass& pass, const runtime::Handler& done) {
              const Bucket& bucket = steps_.buckets[pass.bucket].bucket;
              if (is_ahead(pass)) return states_tier_.fetch_weights(bucket, pass.slot, done);
              states_tier_.fetch(bucket, pass.slot, Copy::counts, done);
            },
        .compute =
            [this, is_ahead](const BucketPass& pass, runtime::Handler done) {
              if (is_ahead(pass)) return round_weights(pass, std::move(done));
              compute(steps_, pass, std::move(done));
            },
        .store =
            [this, is_ahead](const BucketPass& pass, const runtime::Handler& done) {
              if (is_ahead(pass)) return done();
              states_tier_.store(steps_.buckets[pass.bucket].bucket, pass.slot, Copy::counts, done);
            },
        .refresh =
            [this](const BucketPass& pass, const runtime::Handler& done) {
              bucket_stepped(steps_.buckets[pass.bucket].bundle);
              done();  // what layers read was written by the step
            }});
  if (!flips_) return;
  for (const UnitState& unit : states_->all()) is_ahead_.emplace_back(unit.cut.buckets());
  round_ = &ahead_;
  plan(ahead_, as_reduced, Counting::by_flip,
       {.fetch =
            [this](const BucketPass& pass, const runtime::Handler& done) {
              states_tier_.fetch(ahead_.buckets[pass.bucket].bucket, pass.slot, Copy::spare, done);
            },
        .compute = [this](const BucketPass& pass,
                          runtime::Handler done) { compute(ahead_, pass, std::move(done)); },
        .store =
            [this](const BucketPass& pass, const runtime::Handler& done) {
              const Bucket& bucket = ahead_.buckets[pass.bucket].bucket;
              states_tier_.store(bucket, pass.slot, Copy::spare, [this, bucket, done] {
                is_ahead_[bucket.unit][bucket.index] = true;
                done();
              });
            },
        .refresh =
            [this](const BucketPass& pass, const runtime::Handler& done) {
              bucket_stepped_ahead(ahead_.buckets[pass.bucket].bundle);
              done();  // layers' parameters stay
            }});
}

void Optimizer::load(StateTier::Source weights, runtime::Handler done) {
  states_tier_.load(std::move(weights), std::move(done));
}

void Optimizer::read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  expect(storing_.empty(), "weights are read while a step changes them");
  states_tier_.read(unit, begin, out, std::move(done));
}

void Optimizer::begin(const runtime::AdamWOptions& unclipped) {
  newest_ = std::make_shared<Step>();
  newest_->adamw = unclipped;
  newest_->bundles_missing = steps_.bundles.size();
  storing_.push_back(newest_);
  if (steps_.bundles.empty()) {
    part_over(*newest_);
  } else {
    refreshing_.push_back(newest_);
  }
  if (storing_.size() == 1) begin_states();
}

void Optimizer::begin_states() {
  if (flips_) return begin_ahead();
  begin_steps();
}

void Optimizer::begin_steps() {
  const auto step = storing_.front();
  steps_.pipeline->begin([this, step](bool) {
    storing_.pop_front();
    if (!storing_.empty()) begin_states();
    part_over(*step);
  });
  for (const std::size_t bucket : std::exchange(step->ready, {})) steps_.pipeline->ready(bucket);
  if (!every_step_counts_ && !flips_ && step->counts) steps_.pipeline->answer(*step->counts);
}

void Optimizer::begin_ahead() {
  const auto step = storing_.front();
  for (auto& buckets : is_ahead_) buckets.assign(buckets.size(), false);
  const auto ready = std::exchange(step->ready, {});
  if (step->counts && !gathers_gradients_) return ahead_over();
  ahead_.pipeline->begin([this](bool) { ahead_over(); });
  for (const std::size_t bucket : ready) ahead_.pipeline->ready(bucket);
  if (step->counts) end_ahead();
}

/// The step is answered. All buckets are ready by now, or will be where gradients pass through places.
void Optimizer::end_ahead() { ahead_.pipeline->answer(gathers_gradients_); }

/// Nothing of the steps ahead is at work any more.
void Optimizer::ahead_over() {
  const auto step = storing_.front();
  may_begin_ = next_bundle_ = next_gather_ = next_refresh_ = 0;
  if (!*step->counts) {
    // Not before: the next batch overwrites gradients.
    for (std::size_t u = 0; u < states_->all().size(); ++u) parameters_->refreshed(u);
    if (!refreshing_.empty()) {
      refreshing_.pop_front();
      part_over(*step);
    }
    storing_.pop_front();
    if (!storing_.empty()) begin_states();
    return part_over(*step);
  }
  for (std::size_t u = 0; u < is_ahead_.size(); ++u) {
    for (std::size_t index = 0; index < is_ahead_[u].size(); ++index) {
      if (!step->as_ahead) is_ahead_[u][index] = false;
      if (!is_ahead_[u][index]) continue;
      states_tier_.commit({u, index});
      ++answers_.buckets_ahead;
    }
  }
  if (step->as_ahead) answers_.buckets += static_cast<std::int64_t>(steps_.buckets.size());
  round_ = &steps_;
  may_begin_ = steps_.bundles.size();
  begin_steps();
  begin_bundles();
}

void Optimizer::reduced(std::size_t chunk) {
  if (!every_step_counts_ && !flips_) return;
  may_begin_ = chunks_->chunks[chunk].end;
  begin_bundles();
}

void Optimizer::step(const runtime::AdamWOptions& adamw, runtime::Handler done) {
  const auto step = newest_;
  step->done = std::move(done);
  step->answered = trace_->now();
  parameters_->begin_refresh();
  // Learning rate and count were known, and the answer is the same on all ranks.
  step->as_ahead = flips_ && adamw.gradient_scale == step->adamw.gradient_scale;
  if (flips_) ++(step->as_ahead ? answers_.flipped : answers_.again);
  if (!every_step_counts_) {
    step->adamw = adamw;
    step->counts = true;
    if (!flips_) {
      may_begin_ = steps_.bundles.size();
      begin_bundles();
      if (storing_.front() == step) steps_.pipeline->answer(true);
    } else if (storing_.front() == step) {
      end_ahead();
    }
  }
  part_over(*step);
}

void Optimizer::skip(runtime::Handler done) {
  expect(!every_step_counts_, "a step is skipped where every step counts");
  const auto step = newest_;
  step->done = std::move(done);
  step->answered = trace_->now();
  step->counts = false;
  ++answers_.skipped;
  parameters_->begin_refresh();
  if (flips_) {
    if (storing_.front() == step) end_ahead();
    return part_over(*step);
  }
  for (std::size_t u = 0; u < states_->all().size(); ++u) parameters_->refreshed(u);
  for (std::size_t b = 0; b < steps_.buckets.size(); ++b) ready(b);
  if (storing_.front() == step) steps_.pipeline->answer(false);
  if (!refreshing_.empty()) {
    refreshing_.pop_front();
    part_over(*step);
  }
  part_over(*step);
}

void Optimizer::begin_bundles() {
  const bool refreshes = round_ == &steps_ && parameter_tier_ != nullptr;
  // Where gradients pass through places, a step that is as it was ahead has all of it done.
  const bool gathers =
      gathers_gradients_ && (round_ == &ahead_ || refreshing_.empty() || !refreshing_.front()->as_ahead);
  const auto place_is_free = [&] {
    return (!gathers || !free_gradient_places_.empty()) && (!refreshes || !free_parameter_places_.empty());
  };
  const auto take = [](std::vector<std::byte*>& places) {
    std::byte* place = places.back();
    places.pop_back();
    return place;
  };
  while (next_bundle_ < may_begin_ && place_is_free()) {
    const std::size_t b = next_bundle_++;
    Bundle& bundle = round_->bundles[b];
    bundle.buckets_missing = bundle.buckets.size();
    if (refreshes) bundle.parameters = take(free_parameter_places_);
    if (gathers) {
      bundle.gradients = take(free_gradient_places_);
      gather_gradients(b);
    } else {
      gradients_here(b);
    }
  }
}

void Optimizer::gather_gradients(std::size_t b) {
  Bundle& bundle = round_->bundles[b];
  const std::size_t element = runtime::size_of(states_->precision().gradient);
  bundle.buckets_copying = bundle.buckets.size();
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) {
    const BundleBucket& bucket = round_->buckets[bundle.first + i];
    const auto& [u, index] = bucket.bucket;
    const UnitState& unit = states_->all()[u];
    // This rank's part of what is gathered.
    const std::size_t before =
        unit.cut.elements({unit.optimizer.begin, unit.reduced.begin - unit.optimizer.begin}, index);
    std::byte* to = bundle.gradients + bucket.gradient_offset + before * element;
    if (gradient_tier_ != nullptr) {
      gradient_tier_->fetch_reduced(u, index, to, [this, b] { bucket_copied(b); });
      continue;
    }
    for (const Range& run : unit.cut.runs(unit.reduced, index)) {
      runtime::copy(compute_, to, unit.gradients.front().at(run.begin), run.count * element);
      to += run.count * element;
    }
  }
  if (gradient_tier_ != nullptr) return;
  loop_->after_work(compute_, {"optimizer", "the copy of the gradients of bundle", {}, static_cast<std::int64_t>(b)},
                    [this, b] {
                      round_->bundles[b].buckets_copying = 1;
                      bucket_copied(b);
                    });
}

/// Gathers go in one order on all ranks, whatever comes from a tier first.
void Optimizer::bucket_copied(std::size_t bundle) {
  std::vector<Bundle>& bundles = round_->bundles;
  if (--bundles[bundle].buckets_copying > 0) return;
  bundles[bundle].copied = true;
  for (; next_gather_ < bundles.size() && bundles[next_gather_].copied; ++next_gather_) {
    Bundle& next = bundles[next_gather_];
    next.copied = false;
    std::vector<HopPipeline::Part> parts;
    for (std::size_t i = 0; i < next.buckets.size(); ++i) {
      const BundleBucket& bucket = round_->buckets[next.first + i];
      const UnitState& unit = states_->all()[bucket.bucket.unit];
      parts.push_back({next.gradients + bucket.gradient_offset, unit.optimizer.begin, unit.elements,
                       unit.cut.slice(bucket.bucket.index), true});
    }
    gradient_.submit(std::move(parts), "gather of the gradients of " + states_->names(next.buckets),
                     [this, b = next_gather_] { gradients_here(b); });
  }
}

void Optimizer::gradients_here(std::size_t b) {
  const Bundle& bundle = round_->bundles[b];
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) ready(bundle.first + i);
}

void Optimizer::ready(std::size_t bucket) {
  if (storing_.front() == refreshing_.front()) {
    round_->pipeline->ready(bucket);
  } else {
    refreshing_.front()->ready.push_back(bucket);
  }
}

std::vector<HostStep::Piece> Optimizer::pieces(const Round& round, const BucketPass& pass) const {
  const BundleBucket& bucket = round.buckets[pass.bucket];
  const UnitState& unit = states_->all()[bucket.bucket.unit];
  const models::Precision& precision = states_->precision();
  const std::byte* gathered = round.bundles[bucket.bundle].gradients;
  const bool ahead = &round == &ahead_;
  std::vector<HostStep::Piece> pieces;
  for (const StateTier::Run& run :
       states_tier_.runs(bucket.bucket, pass.slot, ahead ? StateTier::Copy::spare : StateTier::Copy::counts)) {
    HostStep::Piece& piece = pieces.emplace_back();
    piece.states = run;
    piece.gradient = gathered != nullptr ? gathered + bucket.gradient_offset +
                                               run.offset * runtime::size_of(precision.gradient)
                                         : unit.gradients.front().at(run.range.begin);
    piece.layers_copy = ahead ? nullptr : layers_copy(bucket, run.range);
    const std::size_t begin = run.range.begin - unit.optimizer.begin, end = begin + run.range.count;
    for (const runtime::DecaySegment& segment : unit.segments) {
      const std::size_t from = std::max(segment.begin, begin), to = std::min(segment.end, end);
      if (from < to) piece.segments.push_back({from - begin, to - begin, segment.decays});
    }
  }
  return pieces;
}

/// Between parameters nothing is stepped, and what layers have there is zero.
void Optimizer::clear_place(const BundleBucket& bucket) {
  if (parameter_tier_ == nullptr || host_step_) return;
  runtime::fill_zero(compute_, steps_.bundles[bucket.bundle].parameters + bucket.parameter_offset,
                     parameter_bytes(*states_, bucket.bucket));
}

/// What AdamW would have rounded, of a bucket that it stepped ahead.
void Optimizer::round_weights(const BucketPass& pass, runtime::Handler done) {
  const BundleBucket& bucket = steps_.buckets[pass.bucket];
  if (host_step_) return host_step_->refresh(pass.slot, pieces(steps_, pass), std::move(done));
  clear_place(bucket);
  const runtime::DType dtype = states_->precision().compute;
  for (const HostStep::Piece& piece : pieces(steps_, pass)) {
    if (piece.layers_copy == nullptr) continue;
    runtime::cast(compute_, piece.layers_copy, dtype, piece.states.weights, runtime::DType::f32,
                  piece.states.range.count);
  }
  if (in_stream_order_) bucket_refreshed(bucket.bucket);
  loop_->after_work(compute_, {"optimizer", "the rounded weights of", states_->all()[bucket.bucket.unit].spec->name},
                    std::move(done));
}

void Optimizer::compute(const Round& round, const BucketPass& pass, runtime::Handler done) {
  const BundleBucket& bucket = round.buckets[pass.bucket];
  const UnitState& unit = states_->all()[bucket.bucket.unit];
  const models::Precision& precision = states_->precision();
  const bool ahead = &round == &ahead_;
  std::vector<HostStep::Piece> pieces = this->pieces(round, pass);
  if (!ahead) clear_place(bucket);
  const auto& adamw = storing_.front()->adamw;
  if (host_step_) {
    return host_step_->step(pass.slot, std::move(pieces), adamw, std::move(done));
  }
  trace_->begin(compute_, SpanKind::optimizer, static_cast<int>(unit.global_index));
  for (HostStep::Piece& piece : pieces) {
    runtime::adamw(compute_,
                   {.weights = piece.states.weights,
                    .m = piece.states.m,
                    .v = piece.states.v,
                    .gradient = piece.gradient,
                    .gradient_dtype = precision.gradient,
                    .working = piece.layers_copy,
                    .working_dtype = precision.compute},
                   std::move(piece.segments), adamw);
  }
  trace_->end(compute_, SpanKind::optimizer, Trace::Lane::compute, static_cast<int>(unit.global_index));
  if (in_stream_order_ && !ahead) bucket_refreshed(bucket.bucket);
  loop_->after_work(compute_, {"optimizer", "the step of", unit.spec->name}, std::move(done));
}

/// Where the step rounds a run of elements to, for layers; null: they read the master weights, or others have these.
std::byte* Optimizer::layers_copy(const BundleBucket& bucket, const Range& run) const {
  const UnitState& unit = states_->all()[bucket.bucket.unit];
  const Range& range = unit.parameters.range;
  if (!states_->separate_master() || !range.contains(run)) return nullptr;
  if (parameter_tier_ == nullptr) return unit.parameters.at(run.begin);
  const std::size_t piece = (run.begin - range.begin) / unit.cut.piece_elements();
  return steps_.bundles[bucket.bundle].parameters + bucket.parameter_offset +
         piece * unit.cut.slice(bucket.bucket.index).count * runtime::size_of(unit.parameters.dtype);
}

void Optimizer::release_gradients(Bundle& bundle) {
  if (bundle.gradients != nullptr) free_gradient_places_.push_back(std::exchange(bundle.gradients, nullptr));
}

void Optimizer::bucket_stepped_ahead(std::size_t b) {
  Bundle& bundle = ahead_.bundles[b];
  if (--bundle.buckets_missing > 0) return;
  release_gradients(bundle);
  begin_bundles();
}

void Optimizer::bucket_stepped(std::size_t b) {
  Bundle& bundle = steps_.bundles[b];
  if (--bundle.buckets_missing > 0) return;
  bundle.stepped = true;
  release_gradients(bundle);
  while (next_refresh_ < steps_.bundles.size() && steps_.bundles[next_refresh_].stepped) {
    steps_.bundles[next_refresh_].stepped = false;
    refresh(next_refresh_++);
  }
  begin_bundles();
}

void Optimizer::refresh(std::size_t b) {
  if (!refreshes_) return store_parameters(b);
  const Bundle& bundle = steps_.bundles[b];
  std::vector<HopPipeline::Part> parts;
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) {
    const BundleBucket& bucket = steps_.buckets[bundle.first + i];
    const UnitState& unit = states_->all()[bucket.bucket.unit];
    const bool compact = parameter_tier_ != nullptr;
    parts.push_back({compact ? bundle.parameters + bucket.parameter_offset : unit.parameters.data,
                     unit.parameters.range.begin, unit.elements, unit.cut.slice(bucket.bucket.index), compact});
  }
  const auto begin = trace_->now();
  const auto what = "gather of the refreshed parameters of " + states_->names(bundle.buckets);
  refresh_.submit(std::move(parts), what, [this, b, begin] {
    trace_->add(SpanKind::gather, Trace::Lane::communicate, begin, trace_->now(),
                static_cast<int>(states_->all()[steps_.bundles[b].buckets.front().unit].global_index));
    store_parameters(b);
  });
}

void Optimizer::store_parameters(std::size_t b) {
  if (parameter_tier_ == nullptr) return bundle_refreshed(b);
  const Bundle& bundle = steps_.bundles[b];
  const auto stored = [this, b, missing = std::make_shared<std::size_t>(bundle.buckets.size())] {
    if (--*missing > 0) return;
    free_parameter_places_.push_back(std::exchange(steps_.bundles[b].parameters, nullptr));
    bundle_refreshed(b);
    begin_bundles();
  };
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) {
    const BundleBucket& bucket = steps_.buckets[bundle.first + i];
    parameter_tier_->store(bucket.bucket.unit, bucket.bucket.index, bundle.parameters + bucket.parameter_offset,
                           stored);
  }
}

void Optimizer::bundle_refreshed(std::size_t b) {
  if (!in_stream_order_) {
    for (const Bucket& bucket : steps_.bundles[b].buckets) bucket_refreshed(bucket);
  }
  const auto step = refreshing_.front();
  if (--step->bundles_missing > 0) return;
  refreshing_.pop_front();
  may_begin_ = next_bundle_ = next_gather_ = next_refresh_ = 0;
  if (flips_) round_ = &ahead_;
  part_over(*step);
}

void Optimizer::bucket_refreshed(const Bucket& bucket) {
  if (--buckets_missing_[bucket.unit] > 0) return;
  buckets_missing_[bucket.unit] = states_->all()[bucket.unit].cut.buckets();
  parameters_->refreshed(bucket.unit);
}

void Optimizer::part_over(Step& step) {
  if (--step.parts_missing > 0) return;
  ++answers_.steps;
  answers_.seconds += runtime::seconds(trace_->now() - step.answered);
  loop_->post(std::exchange(step.done, nullptr));
}

std::vector<std::string> Optimizer::running() const {
  std::vector<std::string> all = gradient_.running();
  for (std::string& what : refresh_.running()) all.push_back(std::move(what));
  return all;
}

}  // namespace ranvier::actors
