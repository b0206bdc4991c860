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

}  // namespace

StageActor::StageActor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView compute,
                       models::Stage& stage, Loader& loader, ParameterStore& parameters, GradientSync& gradients,
                       ActivationTier& checkpoints, runtime::Trace& trace, const Neighbours& neighbours, Policy policy, int microbatch_size)
    : loop_(&loop),
      transport_(&transport),
      compute_(compute),
      stage_(&stage),
      loader_(&loader),
      parameters_(&parameters),
      gradients_(&gradients),
      checkpoints_(&checkpoints),
      trace_(&trace),
      neighbours_(neighbours),
      policy_(policy),
      microbatch_size_(microbatch_size),
      slots_(static_cast<std::size_t>(stage.slots())),
      gradient_buffer_busy_(static_cast<std::size_t>(stage.gradient_buffers())) {}

void StageActor::run(Batch batch, Done done) {
  expect(!running_, "a stage runs one batch at a time");
  batch_ = std::move(batch);
  done_ = std::move(done);
  running_ = true;
  microbatches_ = (batch_.samples + microbatch_size_ - 1) / microbatch_size_;
  forwards_ = backwards_ = released_ = 0;
  loss_ = 0;
  idle_since_ = Trace::Clock::now();
  for (int m = 0; m < std::min(microbatches_, stage_->slots()); ++m) call_for_input(m);
  announce_following();
}

int StageActor::counted_of(int microbatch) const {
  return std::clamp(batch_.counted.value_or(batch_.samples) - microbatch * microbatch_size_, 0, microbatch_size_);
}

int StageActor::samples_of(int microbatch) const { return std::max(counted_of(microbatch), 1); }

models::Stage::Microbatch StageActor::describe(int microbatch) const {
  models::ForwardDetails details = batch_.details;
  if (details.losses != nullptr) details.losses += std::ptrdiff_t{microbatch} * microbatch_size_ * batch_.positions;
  if (microbatch > 0) details.logits = nullptr;
  return {.slot = microbatch % stage_->slots(),
          .samples = samples_of(microbatch),
          .key = {batch_.seed, batch_.step, batch_.first_sample + std::int64_t{microbatch} * microbatch_size_},
          .training = batch_.training,
          .accumulate = gradients_->accumulates(microbatch),
          .loss_factor = batch_.loss_factor,
          .loss_scale = batch_.loss_scale,
          .positions = batch_.positions,
          .details = details};
}

void StageActor::call_for_input(int microbatch) {
  Slot& slot = slot_of(microbatch);
  // All arrivals are counted before the first can happen.
  slot = {.microbatch = microbatch, .missing = 1 + (neighbours_.right ? 0 : 1), .gradient_here = false};
  const int samples = samples_of(microbatch);
  const int index = microbatch % stage_->slots();
  const std::int64_t first = batch_.first_sample + std::int64_t{microbatch} * microbatch_size_;
  const auto on_arrival = [this, microbatch] { arrived(microbatch); };
  if (neighbours_.left) {
    receive(*neighbours_.left, Channel::activation, microbatch, stage_->input(index),
            stage_->input_bytes(samples, batch_.positions), on_arrival);
  } else {
    loader_->load_inputs(first, samples, stage_->input(index), on_arrival);
  }
  if (!neighbours_.right) loader_->load_targets(first, samples, stage_->targets(index), on_arrival);
}

void StageActor::arrived(int microbatch) {
  --slot_of(microbatch).missing;
  next();
}

bool StageActor::forward_ready() const {
  const Slot& slot = slot_of(forwards_);
  return slot.microbatch == forwards_ && slot.missing == 0;
}

bool StageActor::backward_ready() const {
  if (!batch_.training || backwards_ == forwards_) return false;
  if (neighbours_.right && !slot_of(backwards_).gradient_here) return false;
  return !neighbours_.left ||
         std::find(gradient_buffer_busy_.begin(), gradient_buffer_busy_.end(), false) != gradient_buffer_busy_.end();
}

Direction StageActor::choose(bool forward_ready, bool backward_ready, int forwards, int backwards) const {
  // Without backward passes nothing is left to choose.
  if (!batch_.training) return forward_ready ? Direction::forward : Direction::none;
  return next_direction(policy_, {.stage = neighbours_.stage,
                                  .stages = neighbours_.stages,
                                  .microbatches = microbatches_,
                                  .limit = stage_->slots(),
                                  .forwards = forwards,
                                  .backwards = backwards,
                                  .forward_ready = forward_ready,
                                  .backward_ready = backward_ready});
}

void StageActor::next() {
  if (computing_ || !running_) return;
  const Direction direction = choose(forward_ready(), backward_ready(), forwards_, backwards_);
  if (direction == Direction::none) return;
  const auto now = Trace::Clock::now();
  if (idle_since_ && now - *idle_since_ > shortest_wait) {
    trace_->add(SpanKind::wait, Trace::Lane::loop, *idle_since_, now, forwards_);
  }
  idle_since_.reset();
  computing_ = true;
  start(direction);
}

void StageActor::announce(Direction direction, int microbatch) {
  const int slot = microbatch % stage_->slots();
  Pass pass{.direction = direction, .microbatch = microbatch};
  pass.steps = direction == Direction::forward ? stage_->forward_pass(slot) : stage_->backward_pass(slot);
  pass.need = parameters_->announce(pass.steps);
  if (direction == Direction::backward) pass.writes = gradients_->announce(pass.steps);
  pass.checkpoints = checkpoints_->announce(pass.steps, slot, samples_of(microbatch), batch_.training);
  passes_.push_back(std::move(pass));
}

/// Where the order of the passes is fixed, the one after the running one is known.
void StageActor::announce_following() {
  if (policy_ == Policy::message_driven && batch_.training) return;
  int forwards = forwards_, backwards = backwards_;
  for (const Pass& pass : passes_) {
    if (pass.direction == Direction::forward && pass.microbatch == forwards) ++forwards;
    if (pass.direction == Direction::backward && pass.microbatch == backwards) ++backwards;
  }
  const bool forward = forwards < microbatches_, backward = batch_.training && backwards < forwards;
  const Direction direction = choose(forward, backward, forwards, backwards);
  if (direction == Direction::none) return;
  announce(direction, direction == Direction::forward ? forwards : backwards);
}

void StageActor::start(Direction direction) {
  const int microbatch = direction == Direction::forward ? forwards_++ : backwards_++;
  if (passes_.empty()) announce(direction, microbatch);
  Pass& pass = passes_.front();
  expect(pass.direction == direction && pass.microbatch == microbatch,
         "a pass of microbatch {} runs where one of microbatch {} was announced", microbatch, pass.microbatch);
  if (direction == Direction::backward && neighbours_.left) {
    const auto free = std::find(gradient_buffer_busy_.begin(), gradient_buffer_busy_.end(), false);
    pass.gradient_buffer = static_cast<int>(free - gradient_buffer_busy_.begin());
    *free = true;
  }
  announce_following();
  advance();
}

runtime::WorkName StageActor::name_of(const Pass& pass) {
  const bool forward = pass.direction == Direction::forward;
  return {"pipeline", forward ? "the forward pass of microbatch" : "the backward pass of microbatch", {}, pass.microbatch};
}

/// Queues the running pass as far as its parameters and places are there.
void StageActor::advance() {
  Pass& pass = passes_.front();
  while (pass.next < pass.steps.size()) {
    const models::Stage::Step& step = pass.steps[pass.next];
    if (wait_for_needs(step)) {
      trace_pass(false);
      return loop_->after_work(compute_, name_of(pass), [] {});  // what came before it goes on
    }
    trace_pass(true);
    queue(step);
    ++pass.next;
  }
  trace_pass(false);
  const int microbatch = pass.microbatch;
  const bool forward = pass.direction == Direction::forward;
  const runtime::WorkName name = name_of(pass);
  passes_.pop_front();
  loop_->after_work(compute_, name, [this, microbatch, forward] {
    if (forward) {
      finish_forward(microbatch);
    } else {
      finish_backward(microbatch);
    }
  });
}

bool StageActor::wait_for_needs(const models::Stage::Step& step) {
  const Pass& pass = passes_.front();
  if (checkpoints_->uses(step) && !checkpoints_->ready(pass.checkpoints)) {
    checkpoints_->when_ready(pass.checkpoints, [this] { advance(); });
    return true;
  }
  if (step.needs_parameters()) {
    if (parameters_->ready(pass.need, step)) return false;
    parameters_->when_ready(pass.need, step, [this] { advance(); });
    return true;
  }
  if (gradients_->ready(pass.writes)) return false;
  gradients_->when_ready(pass.writes, [this] { advance(); });
  return true;
}

void StageActor::queue(const models::Stage::Step& step) {
  Pass& pass = passes_.front();
  const auto microbatch = describe(pass.microbatch);
  const auto on_loop = [this, &pass](runtime::Handler handler) {
    loop_->after_work(compute_, name_of(pass), std::move(handler));
  };
  const bool uses_checkpoints = checkpoints_->uses(step);
  const auto at = uses_checkpoints ? checkpoints_->queue(pass.checkpoints) : models::CheckpointPlaces{};
  if (step.needs_parameters()) {
    stage_->run(compute_, step, microbatch, pass.gradient_buffer, parameters_->pointers(pass.need, step), {}, at);
    if (parameters_->gathers()) {
      on_loop([this, need = pass.need] { parameters_->used(need); });
      ++pass.need;
    }
  } else {
    stage_->run(compute_, step, microbatch, pass.gradient_buffer, {}, gradients_->places(pass.writes, step), at);
    gradients_->queued(pass.writes, step);
    if (gradients_->listens(pass.microbatch)) {
      on_loop([this, writes = pass.writes, step, m = pass.microbatch] {
        gradients_->written(writes, step, m);
      });
    }
    ++pass.writes;
  }
  if (uses_checkpoints) on_loop([this, use = pass.checkpoints++] { checkpoints_->done(use); });
  if (step.completes_input_gradient) {
    on_loop([this, m = pass.microbatch, buffer = pass.gradient_buffer] { send_input_gradient(m, buffer); });
  }
}

/// Opens or closes the pass's span on the stream: a pass that waits computes nothing.
void StageActor::trace_pass(bool runs) {
  Pass& pass = passes_.front();
  if (pass.traced == runs) return;
  pass.traced = runs;
  const SpanKind kind = pass.direction == Direction::forward ? SpanKind::forward : SpanKind::backward;
  if (runs) {
    trace_->begin(compute_, kind, pass.microbatch);
  } else {
    trace_->end(compute_, kind, Trace::Lane::compute, pass.microbatch);
  }
}

void StageActor::finish_forward(int microbatch) {
  computing_ = false;
  idle_since_ = Trace::Clock::now();
  const int index = microbatch % stage_->slots();
  if (neighbours_.right) {
    const std::size_t bytes = stage_->output_bytes(samples_of(microbatch), batch_.positions);
    send(*neighbours_.right, Channel::activation, microbatch, stage_->output(index), bytes,
         [this, microbatch, index, bytes] {
           if (!batch_.training) return release(microbatch);
           // The output was read; its place takes the gradient that comes back for it.
           receive(*neighbours_.right, Channel::gradient, microbatch, stage_->output(index), bytes,
                   [this, microbatch] {
                     slot_of(microbatch).gradient_here = true;
                     next();
                   });
         });
  } else {
    if (counted_of(microbatch) > 0) loss_ += stage_->loss(index);
    if (!batch_.training) release(microbatch);
  }
  next();
}

void StageActor::send_input_gradient(int microbatch, int buffer) {
  send(*neighbours_.left, Channel::gradient, microbatch, stage_->input_gradient(buffer),
       stage_->input_bytes(samples_of(microbatch)), [this, buffer] {
         gradient_buffer_busy_[static_cast<std::size_t>(buffer)] = false;
         next();
       });
}

void StageActor::finish_backward(int microbatch) {
  computing_ = false;
  idle_since_ = Trace::Clock::now();
  release(microbatch);
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
  if (!running_ || released_ < microbatches_ || sends_ > 0) return;
  running_ = false;
  idle_since_.reset();
  // What runs here may start the next batch.
  const auto done = std::move(done_);
  done(loss_);
}

void StageActor::send(int peer, Channel channel, int microbatch, const std::byte* data, std::size_t bytes,
                      runtime::Handler done) {
  ++sends_;
  const auto begin = Trace::Clock::now();
  transport_->send(peer, Tag{channel, static_cast<std::uint32_t>(microbatch)}, runtime::ConstBytes(data, bytes),
                   [this, begin, microbatch, done = std::move(done)] {
                     trace_->add(SpanKind::send, Trace::Lane::communicate, begin, Trace::Clock::now(), microbatch);
                     --sends_;
                     done();
                     finish_if_done();
                   });
}

void StageActor::receive(int peer, Channel channel, int microbatch, std::byte* data, std::size_t bytes,
                         runtime::Handler done) {
  const auto begin = Trace::Clock::now();
  transport_->receive(peer, Tag{channel, static_cast<std::uint32_t>(microbatch)}, runtime::Bytes(data, bytes),
                      [this, begin, microbatch, done = std::move(done)] {
                        trace_->add(SpanKind::receive, Trace::Lane::communicate, begin, Trace::Clock::now(),
                                    microbatch);
                        done();
                      });
}

}  // namespace ranvier::actors
