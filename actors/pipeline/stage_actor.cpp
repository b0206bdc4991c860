#include "actors/pipeline/stage_actor.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::actors {

using runtime::Channel;
using runtime::SpanKind;
using runtime::Tag;
using runtime::Trace;

namespace {

constexpr auto shortest_wait = std::chrono::microseconds(5);  // that is worth a span

/// Of steps that follow each other.
bool of_one_call(const models::Stage::Step& a, const models::Stage::Step& b) {
  return a.kind == b.kind && a.layer == b.layer;
}

}  // namespace

StageActor::Plan StageActor::plan(Planner& planner, const std::vector<int>& ranks, int stage, Policy policy) {
  Plan plan{.stage = stage,
            .stages = static_cast<int>(ranks.size()),
            .policy = policy,
            .microbatch_size = planner.share.stage->capacity().samples};
  if (stage > 0) plan.left = ranks[static_cast<std::size_t>(stage - 1)];
  if (stage + 1 < plan.stages) plan.right = ranks[static_cast<std::size_t>(stage + 1)];
  return plan;
}

StageActor::StageActor(const RankContext& context, const ModelShare& share, const Plan& plan, Loader& loader,
                       Resources resources)
    : context_(&context),
      stage_(share.stage.get()),
      loader_(&loader),
      resources_(std::move(resources)),
      plan_(plan),
      slots_(static_cast<std::size_t>(stage_->slots())),
      gradient_buffer_busy_(static_cast<std::size_t>(stage_->gradient_buffers())),
      kept_(static_cast<std::size_t>(stage_->deferred_places()), -1) {
  expect(!loader.has_documents() || stage_->sample().documents > 0,
         "samples have documents, for which the stage has no place: plan it with SampleSource::sample_bytes()");
}

void StageActor::run(Batch batch, Done done) {
  expect(!running_, "a stage runs one batch at a time");
  batch_ = std::move(batch);
  done_ = std::move(done);
  running_ = true;
  microbatches_ = (batch_.samples + plan_.microbatch_size - 1) / plan_.microbatch_size;
  forwards_ = backwards_ = weights_ = released_ = 0;
  area_ = {};
  std::fill(kept_.begin(), kept_.end(), -1);
  loss_ = hits_ = 0;
  become_idle();
  for (int m = 0; m < std::min(microbatches_, stage_->slots()); ++m) call_for_input(m);
  announce_following();
}

LayerTimer& StageActor::timer() {
  if (!timer_) timer_.emplace(stage_->layers(), context_->trace);
  return *timer_;
}

int StageActor::counted_of(int microbatch) const {
  const int left = batch_.counted.value_or(batch_.samples) - microbatch * plan_.microbatch_size;
  return std::clamp(left, 0, plan_.microbatch_size);
}

int StageActor::samples_of(int microbatch) const { return std::max(counted_of(microbatch), 1); }

models::Stage::Microbatch StageActor::describe(const Pass& pass) const {
  const int microbatch = pass.microbatch;
  models::ForwardDetails details = batch_.details;
  if (details.losses != nullptr) {
    details.losses += std::ptrdiff_t{microbatch} * plan_.microbatch_size * batch_.positions;
  }
  if (microbatch > 0) details.logits = nullptr;
  return {.slot = microbatch % stage_->slots(),
          .samples = samples_of(microbatch),
          .key = {batch_.seed, batch_.step, batch_.first_sample + std::int64_t{microbatch} * plan_.microbatch_size},
          .training = batch_.training,
          .loss_factor = batch_.loss_factor,
          .loss_scale = batch_.loss_scale,
          .positions = batch_.positions,
          .details = details,
          .documents = loader_->has_documents(),
          .deferred_place = stage_->defers() ? microbatch % stage_->deferred_places() : 0,
          .keeps_segment = pass.keeps_segment};
}

void StageActor::call_for_input(int microbatch) {
  Slot& slot = slot_of(microbatch);
  slot = {.microbatch = microbatch,
          .targets_here = plan_.right.has_value(),
          .documents_here = !loader_->has_documents()};
  const int samples = samples_of(microbatch);
  const int index = microbatch % stage_->slots();
  const std::int64_t first = batch_.first_sample + std::int64_t{microbatch} * plan_.microbatch_size;
  const auto arrives = [this, microbatch](bool Slot::* what) {
    return [this, microbatch, what] {
      slot_of(microbatch).*what = true;
      next();
    };
  };
  if (plan_.left) {
    receive(*plan_.left, Channel::activation, microbatch, stage_->input(index),
            stage_->input_bytes(samples, batch_.positions), arrives(&Slot::input_here));
  } else {
    loader_->load_inputs(first, samples, stage_->input(index), arrives(&Slot::input_here));
  }
  if (!plan_.right) {
    loader_->load_targets(first, samples, stage_->targets(index), arrives(&Slot::targets_here));
  }
  if (loader_->has_documents()) {
    loader_->load_documents(first, samples, stage_->documents(index), arrives(&Slot::documents_here));
  }
}

bool StageActor::forward_ready() const {
  const Slot& slot = slot_of(forwards_);
  return slot.microbatch == forwards_ && slot.input_here && slot.targets_here && slot.documents_here;
}

bool StageActor::backward_ready() const {
  if (!batch_.training || backwards_ == forwards_) return false;
  if (plan_.right && !slot_of(backwards_).gradient_here) return false;
  if (stage_->defers() && backwards_ - weights_ == stage_->deferred_places()) return false;
  return !stage_->sends_gradients() || std::find(gradient_buffer_busy_.begin(), gradient_buffer_busy_.end(),
                                                 false) != gradient_buffer_busy_.end();
}

/// Of the passes that were started, where nothing is ready.
PipelineProgress StageActor::progress() const {
  return {.stage = plan_.stage,
          .stages = plan_.stages,
          .microbatches = microbatches_,
          .limit = stage_->slots(),
          .forwards = forwards_,
          .backwards = backwards_,
          .deferred_limit = stage_->deferred_places(),
          .weights = weights_};
}

Direction StageActor::choose(const PipelineProgress& progress) const {
  // Without backward passes nothing is left to choose.
  if (!batch_.training) return progress.forward_ready ? Direction::forward : Direction::none;
  return next_direction(plan_.policy, progress);
}

void StageActor::become_idle() {
  idle_since_ = context_->trace.now();
  waits_since_ = context_->loop.now();
}

void StageActor::next() {
  if (computing_ || !running_) return;
  PipelineProgress now_ready = progress();
  now_ready.forward_ready = forward_ready();
  now_ready.backward_ready = backward_ready();
  now_ready.weights_ready = weights_ready();
  const Direction direction = choose(now_ready);
  if (direction == Direction::none) return await_weights();
  if (stage_->defers() && batch_.training && messages_decide(plan_.policy) && !looked_) return look_at_messages();
  const auto now = context_->trace.now();
  if (idle_since_ && now - *idle_since_ > shortest_wait) {
    context_->trace.add(SpanKind::wait, Trace::Lane::loop, *idle_since_, now, forwards_);
  }
  idle_since_.reset();
  computing_ = true;
  calls_before_ += calls_.size();
  calls_.clear();
  if (direction == Direction::weights) return advance_weights();
  start(direction);
}

void StageActor::announce(Direction direction, int microbatch) {
  const int slot = microbatch % stage_->slots();
  Pass pass{.direction = direction, .microbatch = microbatch};
  const bool backward = direction == Direction::backward;
  if (stage_->defers() && batch_.training) {
    // A deferred place is an area of its own, and free once the weight gradients before are done.
    int& kept = kept_[static_cast<std::size_t>(microbatch % stage_->deferred_places())];
    if (!backward && microbatch - weights_ < stage_->deferred_places()) kept = microbatch;
    pass.keeps_segment = kept == microbatch;
    area_ = {};
    if (pass.keeps_segment) area_.holds = {slot, stage_->segments().size() - 1};
  }
  models::OrderedPass ordered = backward ? backward_pass(*stage_, slot, area_) : forward_pass(*stage_, slot);
  area_ = ordered.area;
  pass.steps = std::move(ordered.steps);
  for (PassResource* resource : resources_) {
    pass.uses.push_back(resource->announce({.steps = pass.steps,
                                            .microbatch = microbatch,
                                            .slot = slot,
                                            .samples = samples_of(microbatch),
                                            .training = batch_.training,
                                            .backward = backward}));
  }
  passes_.push_back(std::move(pass));
}

/// Where the order of the passes is fixed, the one after the running one is known.
void StageActor::announce_following() {
  if (messages_decide(plan_.policy) && batch_.training) return;
  PipelineProgress following = progress();
  for (const Pass& pass : passes_) {
    if (pass.direction == Direction::forward && pass.microbatch == following.forwards) ++following.forwards;
    if (pass.direction == Direction::backward && pass.microbatch == following.backwards) ++following.backwards;
  }
  following.forward_ready = following.forwards < microbatches_;
  following.backward_ready = batch_.training && following.backwards < following.forwards;
  following.deferred_limit = 0;  // weight gradients that wait come between passes, whose order is the same
  const Direction direction = choose(following);
  if (direction == Direction::none) return;
  announce(direction, direction == Direction::forward ? following.forwards : following.backwards);
}

void StageActor::start(Direction direction) {
  const int microbatch = direction == Direction::forward ? forwards_++ : backwards_++;
  if (passes_.empty()) announce(direction, microbatch);
  Pass& pass = passes_.front();
  expect(pass.direction == direction && pass.microbatch == microbatch,
         "a pass of microbatch {} runs where one of microbatch {} was announced", microbatch, pass.microbatch);
  if (direction == Direction::backward && stage_->sends_gradients()) {
    const auto free = std::find(gradient_buffer_busy_.begin(), gradient_buffer_busy_.end(), false);
    pass.gradient_buffer = static_cast<int>(free - gradient_buffer_busy_.begin());
    *free = true;
  }
  announce_following();
  advance();
}

runtime::WorkName StageActor::name_of(const Pass& pass) const {
  const char* const what = pass.direction == Direction::forward    ? "the forward pass of microbatch"
                           : pass.direction == Direction::backward ? "the backward pass of microbatch"
                                                                   : "the weight gradients of microbatch";
  return {name(), what, {}, pass.microbatch};
}

/// Queues the running pass as far as what its steps need is there.
void StageActor::advance() {
  Pass& pass = passes_.front();
  while (pass.next < pass.steps.size()) {
    if (PassResource* const resource = missing(pass)) {
      trace_pass(pass, false);
      const auto index =
          static_cast<std::size_t>(std::find(resources_.begin(), resources_.end(), resource) - resources_.begin());
      resource->when_ready(pass.uses[index], [this] { advance(); });
      return context_->loop.after_work(context_->compute, name_of(pass), [] {});  // what came before it goes on
    }
    trace_pass(pass, true);
    queue(pass);
  }
  trace_pass(pass, false);
  const int microbatch = pass.microbatch;
  const bool forward = pass.direction == Direction::forward;
  const runtime::WorkName name = name_of(pass);
  passes_.pop_front();
  context_->loop.after_work(context_->compute, name, [this, microbatch, forward] {
    if (forward) {
      finish_forward(microbatch);
    } else {
      finish_backward(microbatch);
    }
  });
}

PassResource* StageActor::missing(const Pass& pass) const {
  const models::Stage::Step& step = pass.steps[pass.next];
  for (std::size_t r = 0; r < resources_.size(); ++r)
    if (resources_[r]->uses(step) && !resources_[r]->ready(pass.uses[r])) return resources_[r];
  return nullptr;
}

/// The next step of the pass.
void StageActor::queue(Pass& pass) {
  const models::Stage::Step& step = pass.steps[pass.next];
  models::StepArrays arrays;
  for (std::size_t r = 0; r < resources_.size(); ++r) {
    if (resources_[r]->uses(step)) resources_[r]->provide(pass.uses[r], arrays);
  }
  // Weight gradients that wait may be left after a step, so each counts for itself.
  const bool alone = pass.direction == Direction::weights;
  if (alone || pass.next == 0 || !of_one_call(pass.steps[pass.next - 1], step)) calls_.push_back(step);
  const auto run = [&] { stage_->run(context_->compute, step, describe(pass), pass.gradient_buffer, arrays); };
  if (timer_) {
    using Kind = models::Stage::Step::Kind;
    timer_->time(context_->compute, step.layer,
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
  for (std::size_t r = 0; r < resources_.size(); ++r) {
    if (!resources_[r]->uses(step)) continue;
    if (resources_[r]->queued(pass.uses[r])) over.emplace_back(resources_[r], pass.uses[r]);
    ++pass.uses[r];
  }
  if (over.empty() && !step.completes_input_gradient) return;
  context_->loop.after_work(context_->compute, name_of(pass),
                            [this, over = std::move(over), sends = step.completes_input_gradient,
                             m = pass.microbatch, buffer = pass.gradient_buffer] {
                              for (const auto& [resource, use] : over) resource->done(use);
                              if (sends) send_input_gradient(m, buffer);
                            });
}

/// Lets the stream say that it has done a call of a layer, with its last part.
void StageActor::mark_call(const Pass& pass) {
  const bool goes_on =
      pass.next + 1 < pass.steps.size() && of_one_call(pass.steps[pass.next], pass.steps[pass.next + 1]);
  if (goes_on && pass.direction != Direction::weights) return;
  context_->compute.call_back([done = calls_done_] { done->fetch_add(1, std::memory_order_relaxed); });
}

std::string StageActor::details() const {
  const std::uint64_t call = calls_done_->load(std::memory_order_relaxed) - calls_before_;
  if (!computing_ || call >= calls_.size()) return {};
  const models::Stage::Step& step = calls_[call];
  const std::string& layer = stage_->layer(step.layer).layer->name();
  switch (step.kind) {
    case models::Stage::Step::Kind::forward:
      return fmt::format("in layer {}{}", layer, step.again ? ", which is computed again" : "");
    case models::Stage::Step::Kind::backward_input:
      return fmt::format("in the input gradient of layer {}", layer);
    case models::Stage::Step::Kind::backward_weight:
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

void StageActor::finish_forward(int microbatch) {
  computing_ = false;
  become_idle();
  const int index = microbatch % stage_->slots();
  if (plan_.right) {
    const std::size_t bytes = stage_->output_bytes(samples_of(microbatch), batch_.positions);
    send(*plan_.right, Channel::activation, microbatch, stage_->output(index), bytes,
         [this, microbatch, index, bytes] {
           if (!batch_.training) return release(microbatch);
           // The output was read; its place takes the gradient that comes back for it.
           if (!stage_->awaits_gradients()) {
             slot_of(microbatch).gradient_here = true;
             return next();
           }
           receive(*plan_.right, Channel::gradient, microbatch, stage_->output(index), bytes, [this, microbatch] {
             slot_of(microbatch).gradient_here = true;
             next();
           });
         });
  } else {
    if (counted_of(microbatch) > 0) {
      loss_ += stage_->loss(index);
      if (!batch_.training) hits_ += stage_->hits(index);
    }
    if (!batch_.training) release(microbatch);
  }
  next();
}

void StageActor::send_input_gradient(int microbatch, int buffer) {
  send(*plan_.left, Channel::gradient, microbatch, stage_->input_gradient(buffer),
       stage_->input_bytes(samples_of(microbatch)), [this, buffer] {
         gradient_buffer_busy_[static_cast<std::size_t>(buffer)] = false;
         next();
       });
}

void StageActor::finish_backward(int microbatch) {
  computing_ = false;
  become_idle();
  if (stage_->defers()) {
    announce_weights(microbatch);
  } else {
    release(microbatch);
  }
  next();
}

void StageActor::release(int microbatch) {
  slot_of(microbatch).microbatch = -1;
  ++released_;
  const int following = microbatch + stage_->slots();
  if (following < microbatches_) call_for_input(following);
  finish_if_done();
}

void StageActor::finish_if_done() {
  if (!running_ || released_ < microbatches_ || !sends_.empty()) return;
  running_ = false;
  idle_since_.reset();
  // What runs here may start the next batch.
  const auto done = std::move(done_);
  done(loss_);
}

std::vector<Wait> StageActor::waits() const {
  std::vector<Wait> all;
  const auto message = [](runtime::Channel channel, int microbatch) {
    const char* what = channel == Channel::activation ? "activation" : "gradient";
    return fmt::format("the {} of microbatch {}", what, microbatch);
  };
  for (const Sending& sending : sends_) {
    all.push_back({message(sending.channel, sending.microbatch) + " to be taken", sending.rank, sending.since});
  }
  if (!running_ || computing_) return all;
  // Where the policy fixes the order of passes, only one of the two is next; where messages do, both may be, but for
  // forward passes of a stage that is far enough ahead.
  const auto may_be_next = [this](Direction direction) {
    PipelineProgress both = progress();
    if (messages_decide(plan_.policy)) {
      (direction == Direction::forward ? both.forward_ready : both.backward_ready) = true;
      return choose(both) == direction;
    }
    both.forward_ready = both.backward_ready = true;
    both.weights_ready = weights_ < backwards_;
    return choose(both) == direction;
  };
  const Slot& next = slot_of(forwards_);
  if (plan_.left && next.microbatch == forwards_ && !next.input_here && may_be_next(Direction::forward)) {
    all.push_back({message(Channel::activation, forwards_), plan_.left, waits_since_});
  }
  // No gradient comes before its activation was taken.
  const bool taken = std::none_of(sends_.begin(), sends_.end(), [this](const Sending& sending) {
    return sending.channel == Channel::activation && sending.microbatch == backwards_;
  });
  if (stage_->awaits_gradients() && batch_.training && backwards_ < forwards_ && taken &&
      !slot_of(backwards_).gradient_here && may_be_next(Direction::backward)) {
    all.push_back({message(Channel::gradient, backwards_), plan_.right, waits_since_});
  }
  std::stable_sort(all.begin(), all.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
  return all;
}

std::vector<int> StageActor::peers() const {
  std::vector<int> ranks;
  for (const auto& neighbour : {plan_.left, plan_.right}) {
    if (neighbour) ranks.push_back(*neighbour);
  }
  return ranks;
}

void StageActor::send(int peer, Channel channel, int microbatch, const std::byte* data, std::size_t bytes,
                      runtime::Handler done) {
  sends_.push_back({channel, microbatch, peer, context_->loop.now()});
  const auto begin = context_->trace.now();
  context_->transport.send(
      peer, Tag{channel, static_cast<std::uint32_t>(microbatch)}, runtime::ConstBytes(data, bytes),
      [this, begin, channel, microbatch, done = std::move(done)] {
        context_->trace.add(SpanKind::send, Trace::Lane::communicate, begin, context_->trace.now(), microbatch);
        std::erase_if(sends_, [&](const Sending& sending) {
          return sending.channel == channel && sending.microbatch == microbatch;
        });
        done();
        finish_if_done();
      });
}

void StageActor::receive(int peer, Channel channel, int microbatch, std::byte* data, std::size_t bytes,
                         runtime::Handler done) {
  const auto begin = context_->trace.now();
  context_->transport.receive(peer, Tag{channel, static_cast<std::uint32_t>(microbatch)},
                              runtime::Bytes(data, bytes), [this, begin, microbatch, done = std::move(done)] {
                                context_->trace.add(SpanKind::receive, Trace::Lane::communicate, begin,
                                                    context_->trace.now(), microbatch);
                                done();
                              });
}

}  // namespace ranvier::actors
