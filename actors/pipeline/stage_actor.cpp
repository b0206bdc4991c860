#include "actors/pipeline/stage_actor.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

namespace {

constexpr auto shortest_wait = std::chrono::microseconds(5);  // shorter waits get no span

/// Returns whether two consecutive steps belong to one layer call.
bool of_one_call(const models::Stage::PassStep& a, const models::Stage::PassStep& b) {
  return a.kind == b.kind && a.layer == b.layer;
}

}  // namespace

StageActor::Plan StageActor::plan(PlanContext& planner, const std::vector<int>& ranks, const SliceMap& map,
                                  int stage, Policy policy) {
  Plan plan{.stage = stage,
            .map = map,
            .slices = {},
            .policy = policy,
            .microbatch_size = planner.share.stage->capacity().samples,
            .ordered_backward = planner.share.states->shards_gradients()};
  const auto rank_of = [&](int slice) { return ranks[static_cast<std::size_t>(map.stage_of(slice))]; };
  for (int chunk = 0; chunk < map.chunks; ++chunk) {
    SliceQueue::Plan& slice = plan.slices.emplace_back();
    slice.slice = map.slice_of(stage, chunk);
    if (slice.slice > 0) slice.left = rank_of(slice.slice - 1);
    if (slice.slice + 1 < map.slices()) slice.right = rank_of(slice.slice + 1);
  }
  return plan;
}

StageActor::StageActor(const RankContext& context, const ModelShare& share, const Plan& plan, Loader& loader,
                       std::vector<Resources> resources)
    : context_(&context), stages_(share.stage.get()), resources_(std::move(resources)), plan_(plan) {
  expect(resources_.size() == plan_.slices.size() && stages_->size() == plan_.slices.size(),
         "a stage of {} slices has {} layouts, and resources for {}", plan_.slices.size(), stages_->size(),
         resources_.size());
  expect(!loader.has_documents() || stages_->sample().documents > 0,
         "samples have documents, for which the stage has no place: plan it with SampleSource::sample_bytes()");
  for (std::size_t chunk = 0; chunk < plan_.slices.size(); ++chunk) {
    models::Stage& stage = stages_->slice(chunk);
    slices_.emplace_back(context, stage, plan_.map, plan_.slices[chunk], loader, plan_.microbatch_size,
                         SliceQueue::Hooks{.changed = [this] { next(); }, .left = [this] { finish_if_done(); }});
    kept_.emplace_back(static_cast<std::size_t>(stage.deferred_slots()), -1);
  }
  next_passes_.resize(slices_.size());
}

void StageActor::run(Batch batch, Done done) {
  expect(!done_, "a stage runs one batch at a time");
  batch_ = std::move(batch);
  done_ = std::move(done);
  const SliceMap& map = plan_.map;
  order_ = {.chunks = map.chunks,
            .microbatches = batch_.microbatches(plan_.microbatch_size),
            .group = chunk_group(plan_.policy, map.stages, stages_->slice(0).slots())};
  area_ = {};
  for (auto& of_slice : kept_) std::ranges::fill(of_slice, -1);
  become_idle();
  for (SliceQueue& slice : slices_) slice.begin(batch_);
  announce_following();
}

LayerTimer& StageActor::timer() {
  if (!timer_) timer_.emplace(stages_->layers(), context_->trace);
  return *timer_;
}

/// Progress of started passes, with no pass marked as ready.
PipelineProgress StageActor::progress() const {
  const models::Stage& front = stages_->slice(0);
  PipelineProgress all{.stage = plan_.stage,
                       .stages = plan_.map.stages,
                       .chunks = plan_.map.chunks,
                       .microbatches = order_.microbatches,
                       .limit = front.slots()};
  for (const SliceQueue& slice : slices_) {
    const models::Stage& stage = slice.stage();
    all.forwards += slice.forwards();
    all.backwards += slice.backwards();
    // Without trained parameters in a slice, weight gradients count as finished.
    all.weights += stage.defers() ? slice.weights() : slice.backwards();
    all.deferred_limit = std::max(all.deferred_limit, stage.deferred_slots());
  }
  return all;
}

bool StageActor::fixes(Direction direction) const {
  if (!messages_decide(plan_.policy) || !batch_.training) return true;
  return direction == Direction::backward && plan_.ordered_backward;
}

std::optional<std::size_t> StageActor::next_slice(Direction direction) {
  const bool forward = direction == Direction::forward;
  for (std::size_t chunk = 0; chunk < slices_.size(); ++chunk) next_passes_[chunk] = slices_[chunk].next(forward);
  const auto chunk = next_chunk(order_, forward, next_passes_, fixes(direction));
  if (!chunk) return std::nullopt;
  return static_cast<std::size_t>(*chunk);
}

Direction StageActor::choose(const PipelineProgress& progress) const {
  // Evaluation has forward passes only.
  if (!batch_.training) return progress.forward_ready ? Direction::forward : Direction::none;
  return next_direction(plan_.policy, progress);
}

void StageActor::become_idle() {
  idle_since_ = context_->trace.now();
  waits_since_ = context_->loop.now();
}

void StageActor::next() {
  if (queueing_ || queued_ == max_queued() || !done_) return;
  const auto forward = next_slice(Direction::forward), backward = next_slice(Direction::backward);
  PipelineProgress now_ready = progress();
  now_ready.forward_ready = forward.has_value();
  now_ready.backward_ready = backward.has_value();
  now_ready.weights_ready = weights_ready();
  const Direction direction = choose(now_ready);
  if (direction == Direction::none) return await_weights();
  if (stages_->defers() && batch_.training && messages_decide(plan_.policy) && !looked_) return look_at_messages();
  const auto now = context_->trace.now();
  if (idle_since_ && now - *idle_since_ > shortest_wait) {
    context_->trace.add(SpanKind::wait, Trace::Lane::loop, *idle_since_, now, now_ready.forwards);
  }
  idle_since_.reset();
  queueing_ = true;
  for (; !calls_.empty() && calls_before_ < calls_done_->load(std::memory_order_relaxed); ++calls_before_)
    calls_.pop_front();
  if (direction == Direction::weights) return advance_weights();
  start(direction, *(direction == Direction::forward ? forward : backward));
}

void StageActor::announce(Direction direction, std::size_t chunk, int microbatch) {
  const SliceQueue& slice = slices_[chunk];
  const models::Stage& stage = slice.stage();
  const int slot = slice.slot_index(microbatch);
  Pass pass{.direction = direction, .chunk = chunk, .microbatch = microbatch};
  const bool backward = direction == Direction::backward;
  if (stage.defers() && batch_.training) {
    // A deferred buffer is separate memory, free when its previous weight gradients are finished.
    int& kept = kept_[chunk][static_cast<std::size_t>(microbatch % stage.deferred_slots())];
    if (!backward && microbatch - slice.weights() < stage.deferred_slots()) kept = microbatch;
    pass.keeps_segment = kept == microbatch;
    area_ = {};
    if (pass.keeps_segment) area_.holds = {slot, stage.segments().size() - 1, chunk};
  }
  models::OrderedPass ordered = backward ? backward_pass(stage, slot, area_) : forward_pass(stage, slot);
  area_ = ordered.area;
  pass.steps = std::move(ordered.steps);
  announce_uses(pass, backward);
  passes_.push_back(std::move(pass));
}

void StageActor::announce_uses(Pass& pass, bool backward) {
  const SliceQueue& slice = slices_[pass.chunk];
  for (PassResource* resource : resources_[pass.chunk]) {
    pass.uses.push_back(resource->announce({.steps = pass.steps,
                                            .microbatch = pass.microbatch,
                                            .slot = slice.slot_index(pass.microbatch),
                                            .samples = slice.samples_of(pass.microbatch),
                                            .training = batch_.training,
                                            .backward = backward}));
  }
}

/// Announces the pass after the running one, if the order of passes is fixed.
void StageActor::announce_following() {
  if (messages_decide(plan_.policy) && batch_.training) return;
  PipelineProgress following = progress();
  if (!passes_.empty()) {
    // The first pass may have started and may already be counted.
    const Pass& last = passes_.back();
    const bool forward = last.direction == Direction::forward;
    int& started = forward ? following.forwards : following.backwards;
    started = std::max(started, 1 + order_.number_of(forward, {static_cast<int>(last.chunk), last.microbatch}));
  }
  following.forward_ready = following.forwards < order_.passes();
  following.backward_ready = batch_.training && following.backwards < following.forwards;
  following.deferred_limit = 0;  // deferred weight gradients run between passes, without changing their order
  const Direction direction = choose(following);
  if (direction == Direction::none) return;
  const bool forward = direction == Direction::forward;
  const SlicePass pass = order_.at(forward, forward ? following.forwards : following.backwards);
  announce(direction, static_cast<std::size_t>(pass.chunk), pass.microbatch);
}

void StageActor::start(Direction direction, std::size_t chunk) {
  SliceQueue& slice = slices_[chunk];
  const int microbatch = direction == Direction::forward ? slice.start_forward() : slice.start_backward();
  if (passes_.empty()) announce(direction, chunk, microbatch);
  Pass& pass = passes_.front();
  expect(pass.direction == direction && pass.chunk == chunk && pass.microbatch == microbatch,
         "a pass of microbatch {} in chunk {} runs where one of microbatch {} in chunk {} was announced",
         microbatch, chunk, pass.microbatch, pass.chunk);
  if (direction == Direction::backward) pass.gradient_buffer = slice.take_gradient_buffer();
  announce_following();
  advance();
}

runtime::WorkName StageActor::name_of(const Pass& pass) const {
  const char* const what = pass.direction == Direction::forward    ? "the forward pass of microbatch"
                           : pass.direction == Direction::backward ? "the backward pass of microbatch"
                                                                   : "the weight gradients of microbatch";
  return {name(), what, {}, pass.microbatch};
}

/// Queues steps of the current pass until one waits for a resource.
void StageActor::advance() {
  Pass& pass = passes_.front();
  while (pass.next < pass.steps.size()) {
    if (const auto lacks = missing(pass)) {
      trace_pass(pass, false);
      lacks->resource->when_ready(lacks->use, [this] { advance(); });
      return context_->loop.after_work(context_->compute, name_of(pass), [] {});  // earlier steps still run
    }
    trace_pass(pass, true);
    queue(pass);
  }
  trace_pass(pass, false);
  const runtime::WorkName name = name_of(pass);
  const auto over = [this, direction = pass.direction, chunk = pass.chunk, microbatch = pass.microbatch] {
    finish(direction, chunk, microbatch);
  };
  passes_.pop_front();
  all_queued(name, over);
  next();
}

void StageActor::all_queued(const runtime::WorkName& name, runtime::Handler done) {
  queueing_ = false;
  ++queued_;
  context_->loop.after_work(context_->compute, name, std::move(done));
}

void StageActor::pass_done() {
  --queued_;
  if (queued_ == 0 && !queueing_) become_idle();
}

std::optional<StageActor::Missing> StageActor::missing(const Pass& pass) const {
  const models::Stage::PassStep& step = pass.steps[pass.next];
  const Resources& resources = resources_[pass.chunk];
  for (std::size_t r = 0; r < resources.size(); ++r)
    if (resources[r]->uses(step) && !resources[r]->ready(pass.uses[r])) return Missing{resources[r], pass.uses[r]};
  return std::nullopt;
}

/// Queues the next step of the pass.
void StageActor::queue(Pass& pass) {
  const models::Stage::PassStep& step = pass.steps[pass.next];
  SliceQueue& slice = slices_[pass.chunk];
  const Resources& resources = resources_[pass.chunk];
  models::StepArrays arrays;
  for (std::size_t r = 0; r < resources.size(); ++r) {
    if (resources[r]->uses(step)) resources[r]->provide(pass.uses[r], arrays);
  }
  // Deferred weight gradients may be interrupted after a step, so each step counts separately.
  const bool alone = pass.direction == Direction::weights;
  if (alone || pass.next == 0 || !of_one_call(pass.steps[pass.next - 1], step)) calls_.push_back(step);
  const auto run = [&] {
    slice.stage().run(context_->compute, step, slice.describe(pass.microbatch, pass.keeps_segment),
                      pass.gradient_buffer, arrays);
  };
  if (timer_) {
    using Kind = models::Stage::PassStep::Kind;
    timer_->time(context_->compute, stages_->layer_of(step),
                 step.kind == Kind::backward_weight     ? &LayerSeconds::weights
                 : pass.direction == Direction::forward ? &LayerSeconds::forward
                                                        : &LayerSeconds::backward,
                 run);
  } else {
    run();
  }
  mark_call(pass);
  ++pass.next;
  std::vector<std::pair<PassResource*, std::uint64_t>> over;
  for (std::size_t r = 0; r < resources.size(); ++r) {
    if (!resources[r]->uses(step)) continue;
    if (resources[r]->queued(pass.uses[r])) over.emplace_back(resources[r], pass.uses[r]);
    ++pass.uses[r];
  }
  if (over.empty() && !step.completes_input_gradient) return;
  context_->loop.after_work(context_->compute, name_of(pass),
                            [&slice, over = std::move(over), sends = step.completes_input_gradient,
                             m = pass.microbatch, buffer = pass.gradient_buffer] {
                              for (const auto& [resource, use] : over) resource->done(use);
                              if (sends) slice.send_input_gradient(m, buffer);
                            });
}

/// Queues a counter update after the last step of a layer call.
void StageActor::mark_call(const Pass& pass) {
  const bool goes_on =
      pass.next + 1 < pass.steps.size() && of_one_call(pass.steps[pass.next], pass.steps[pass.next + 1]);
  if (goes_on && pass.direction != Direction::weights) return;
  context_->compute.call_back([done = calls_done_] { done->fetch_add(1, std::memory_order_relaxed); });
}

std::string StageActor::details() const {
  const std::uint64_t call = calls_done_->load(std::memory_order_relaxed) - calls_before_;
  if (call >= calls_.size()) return {};
  const models::Stage::PassStep& step = calls_[call];
  const std::string& layer = stages_->layer(stages_->layer_of(step)).layer->name();
  switch (step.kind) {
    case models::Stage::PassStep::Kind::forward:
      return fmt::format("in layer {}{}", layer, step.again ? ", which is computed again" : "");
    case models::Stage::PassStep::Kind::backward_input:
      return fmt::format("in the input gradient of layer {}", layer);
    case models::Stage::PassStep::Kind::backward_weight:
      return fmt::format("in the weight gradients of layer {}", layer);
  }
  return {};
}

/// Opens or closes the pass's span on the stream: a pass that waits computes nothing.
void StageActor::trace_pass(Pass& pass, bool runs) {
  if (pass.traced == runs) return;
  pass.traced = runs;
  const SpanKind kind = pass.direction == Direction::forward    ? SpanKind::forward
                        : pass.direction == Direction::backward ? SpanKind::backward
                                                                : SpanKind::weights;
  if (runs) {
    context_->trace.begin(context_->compute, kind, pass.microbatch);
  } else {
    context_->trace.end(context_->compute, kind, Trace::Lane::compute, pass.microbatch);
  }
}

void StageActor::finish(Direction direction, std::size_t chunk, int microbatch) {
  pass_done();
  SliceQueue& slice = slices_[chunk];
  if (direction == Direction::forward) {
    slice.finish_forward(microbatch);
  } else if (direction == Direction::weights) {
    slice.finish_weights(microbatch);
  } else if (slice.stage().defers()) {
    announce_weights(chunk, microbatch);
  } else {
    slice.finish_backward(microbatch);
  }
  next();
}

void StageActor::finish_if_done() {
  if (!done_ || !std::ranges::all_of(slices_, [](const SliceQueue& s) { return s.over(); })) return;
  idle_since_.reset();
  double loss = 0;
  for (const SliceQueue& slice : slices_) loss += slice.loss();
  std::exchange(done_, nullptr)(loss);  // may start the next batch
}

double StageActor::correct() const {
  double correct = 0;
  for (const SliceQueue& slice : slices_) correct += slice.correct();
  return correct;
}

std::vector<Wait> StageActor::waits() const {
  std::vector<Wait> all;
  for (const SliceQueue& slice : slices_) slice.add_sends(all);
  if (!done_ || queueing_ || queued_ > 0) return all;
  // With a fixed order, only one direction is next. With message-driven schedules both may be, except forward passes of
  // a stage that is far enough ahead.
  const PipelineProgress now = progress();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const bool forward = direction == Direction::forward;
    const int number = forward ? now.forwards : now.backwards;
    if (number == order_.passes()) continue;
    PipelineProgress both = now;
    if (messages_decide(plan_.policy)) {
      (forward ? both.forward_ready : both.backward_ready) = true;
    } else {
      both.forward_ready = both.backward_ready = true;
      both.weights_ready = now.weights < now.backwards;
    }
    if (choose(both) != direction) continue;
    for (std::size_t chunk = 0; chunk < slices_.size(); ++chunk) {
      if (fixes(direction) && order_.at(forward, number).chunk != static_cast<int>(chunk)) continue;
      if (auto wait = slices_[chunk].awaited(forward, waits_since_)) all.push_back(std::move(*wait));
    }
  }
  oldest_first(all);
  return all;
}

std::vector<int> StageActor::peers() const {
  std::vector<int> ranks;
  for (const SliceQueue::Plan& slice : plan_.slices) {
    for (const auto& neighbour : {slice.left, slice.right}) {
      if (neighbour) ranks.push_back(*neighbour);
    }
  }
  return ranks;
}

}  // namespace ranvier::actors
