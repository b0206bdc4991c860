#include "actors/stage_actor.hpp"

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
                       models::Stage& stage, Loader& loader, runtime::Trace& trace, const Neighbours& neighbours,
                       Policy policy, int microbatch_size)
    : loop_(&loop),
      transport_(&transport),
      compute_(compute),
      stage_(&stage),
      loader_(&loader),
      trace_(&trace),
      neighbours_(neighbours),
      policy_(policy),
      microbatch_size_(microbatch_size),
      slots_(static_cast<std::size_t>(stage.slots())),
      gradient_buffer_busy_(static_cast<std::size_t>(stage.gradient_buffers())) {}

void StageActor::run(Batch batch, Hooks hooks) {
  expect(!running_, "a stage runs one batch at a time");
  batch_ = std::move(batch);
  hooks_ = std::move(hooks);
  running_ = true;
  microbatches_ = (batch_.samples + microbatch_size_ - 1) / microbatch_size_;
  forwards_ = backwards_ = released_ = 0;
  loss_ = 0;
  idle_since_ = Trace::Clock::now();
  for (int m = 0; m < std::min(microbatches_, stage_->slots()); ++m) call_for_input(m);
}

int StageActor::samples_of(int microbatch) const {
  return std::min(microbatch_size_, batch_.samples - microbatch * microbatch_size_);
}

models::Stage::Microbatch StageActor::describe(int microbatch) const {
  return {.slot = microbatch % stage_->slots(),
          .samples = samples_of(microbatch),
          .key = {batch_.seed, batch_.step, batch_.first_sample + std::int64_t{microbatch} * microbatch_size_},
          .training = batch_.training,
          .accumulate = microbatch > 0,
          .loss_factor = batch_.loss_factor,
          .loss_scale = batch_.loss_scale};
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
    receive(*neighbours_.left, Channel::activation, microbatch, stage_->input(index), stage_->input_bytes(samples),
            on_arrival);
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

void StageActor::next() {
  if (computing_ || !running_) return;
  const PipelineProgress progress{.stage = neighbours_.stage,
                                  .stages = neighbours_.stages,
                                  .microbatches = microbatches_,
                                  .limit = stage_->slots(),
                                  .forwards = forwards_,
                                  .backwards = backwards_,
                                  .forward_ready = forward_ready(),
                                  .backward_ready = backward_ready()};
  // Without backward passes nothing is left to choose.
  const Direction direction = batch_.training            ? next_direction(policy_, progress)
                              : progress.forward_ready ? Direction::forward
                                                       : Direction::none;
  if (direction == Direction::none) return;
  const auto now = Trace::Clock::now();
  if (idle_since_ && now - *idle_since_ > shortest_wait) {
    trace_->add(SpanKind::wait, Trace::Lane::loop, *idle_since_, now, forwards_);
  }
  idle_since_.reset();
  computing_ = true;
  if (direction == Direction::forward) {
    start_forward(forwards_++);
  } else {
    start_backward(backwards_++);
  }
}

void StageActor::start_forward(int microbatch) {
  trace_->begin(compute_, SpanKind::forward, microbatch);
  stage_->forward(compute_, describe(microbatch));
  trace_->end(compute_, SpanKind::forward, Trace::Lane::compute, microbatch);
  compute_.call_back([this, microbatch] { loop_->post([this, microbatch] { finish_forward(microbatch); }); });
}

void StageActor::finish_forward(int microbatch) {
  computing_ = false;
  idle_since_ = Trace::Clock::now();
  const int index = microbatch % stage_->slots();
  if (neighbours_.right) {
    const std::size_t bytes = stage_->output_bytes(samples_of(microbatch));
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
    loss_ += stage_->loss(index);
    if (!batch_.training) release(microbatch);
  }
  next();
}

void StageActor::start_backward(int microbatch) {
  int buffer = 0;
  if (neighbours_.left) {
    const auto free = std::find(gradient_buffer_busy_.begin(), gradient_buffer_busy_.end(), false);
    buffer = static_cast<int>(free - gradient_buffer_busy_.begin());
    *free = true;
  }
  const bool last_microbatch = microbatch + 1 == microbatches_;
  models::Stage::BackwardHooks hooks;
  hooks.input_gradient_queued = [this, microbatch, buffer] {
    compute_.call_back([this, microbatch, buffer] {
      loop_->post([this, microbatch, buffer] { send_input_gradient(microbatch, buffer); });
    });
  };
  if (last_microbatch && hooks_.layer_gradients) {
    hooks.layer_queued = [this](std::size_t layer) {
      compute_.call_back([this, layer] { loop_->post([this, layer] { hooks_.layer_gradients(layer); }); });
    };
  }
  trace_->begin(compute_, SpanKind::backward, microbatch);
  stage_->backward(compute_, describe(microbatch), buffer, hooks);
  trace_->end(compute_, SpanKind::backward, Trace::Lane::compute, microbatch);
  compute_.call_back([this, microbatch] { loop_->post([this, microbatch] { finish_backward(microbatch); }); });
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
  // The hook may start the next batch.
  const auto done = std::move(hooks_.done);
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
