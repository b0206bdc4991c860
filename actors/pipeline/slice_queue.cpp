#include "actors/pipeline/slice_queue.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace ranvier::actors {

using runtime::Channel;
using runtime::SpanKind;
using runtime::Tag;
using runtime::Trace;

SliceQueue::SliceQueue(const RankContext& context, models::Stage& stage, const SliceMap& map, const Plan& plan,
                       Loader& loader, int microbatch_size, Hooks hooks)
    : context_(&context),
      stage_(&stage),
      map_(map),
      plan_(plan),
      loader_(&loader),
      microbatch_size_(microbatch_size),
      hooks_(std::move(hooks)),
      slots_(static_cast<std::size_t>(stage.sample_slots())),
      gradient_buffer_busy_(static_cast<std::size_t>(stage.gradient_buffers())) {}

void SliceQueue::begin(const PassBatch& batch) {
  batch_ = &batch;
  microbatches_ = batch.microbatches(microbatch_size_);
  forwards_ = backwards_ = weights_ = released_ = 0;
  loss_ = correct_ = 0;
  for (int m = 0; m < std::min(microbatches_, stage_->sample_slots()); ++m) call_for_input(m);
}

models::Stage::Microbatch SliceQueue::describe(int microbatch, bool keeps_segment) const {
  models::EvalOutputs details = batch_->details;
  if (details.losses != nullptr) {
    details.losses += std::ptrdiff_t{microbatch} * microbatch_size_ * batch_->positions;
  }
  if (microbatch > 0) details.logits = nullptr;
  return {.slot = slot_index(microbatch),
          .sample_slot = sample_slot(microbatch),
          .samples = samples_of(microbatch),
          .key = {batch_->seed, batch_->step, batch_->first_sample + std::int64_t{microbatch} * microbatch_size_},
          .training = batch_->training,
          .loss_factor = batch_->loss_factor,
          .loss_scale = batch_->loss_scale,
          .positions = batch_->positions,
          .details = details,
          .documents = loader_->has_documents(),
          .deferred_slot = stage_->defers() ? microbatch % stage_->deferred_slots() : 0,
          .keeps_segment = keeps_segment};
}

runtime::Handler SliceQueue::arrival(int microbatch, bool Slot::* what) {
  return [this, microbatch, what] {
    slot_of(microbatch).*what = true;
    hooks_.changed();
  };
}

void SliceQueue::call_for_input(int microbatch) {
  Slot& slot = slot_of(microbatch);
  slot = {.microbatch = microbatch,
          .targets_here = plan_.right.has_value(),
          .documents_here = !loader_->has_documents()};
  const int samples = samples_of(microbatch);
  const int index = sample_slot(microbatch);
  const std::int64_t first = batch_->first_sample + std::int64_t{microbatch} * microbatch_size_;
  if (plan_.left) {
    receive(*plan_.left, Channel::activation, microbatch, stage_->input(index),
            stage_->input_bytes(samples, batch_->positions), arrival(microbatch, &Slot::input_here));
  } else {
    loader_->load(Loader::Data::inputs, first, samples, stage_->input(index),
                  arrival(microbatch, &Slot::input_here));
  }
  if (!plan_.right) {
    loader_->load(Loader::Data::targets, first, samples, stage_->targets(index),
                  arrival(microbatch, &Slot::targets_here));
  }
  if (loader_->has_documents()) {
    loader_->load(Loader::Data::documents, first, samples, stage_->documents(index),
                  arrival(microbatch, &Slot::documents_here));
  }
}

bool SliceQueue::forward_ready() const {
  const Slot& slot = slot_of(forwards_);
  // With stream order, a slot is free when its backward pass is queued: the next forward pass follows it on the stream.
  const int in_use = batch_->training ? forwards_ - (follows_stream() ? backwards_ : released_) : 0;
  if (in_use == stage_->slots()) return false;
  return slot.microbatch == forwards_ && slot.input_here && slot.targets_here && slot.documents_here;
}

bool SliceQueue::backward_ready() const {
  if (!batch_->training || backwards_ == forwards_) return false;
  if (plan_.right && !slot_of(backwards_).gradient_here) return false;
  if (stage_->defers() && backwards_ - weights_ == stage_->deferred_slots()) return false;
  return !stage_->sends_gradients() ||
         std::ranges::find(gradient_buffer_busy_, false) != gradient_buffer_busy_.end();
}

int SliceQueue::take_gradient_buffer() {
  if (!stage_->sends_gradients()) return 0;
  const auto free = std::ranges::find(gradient_buffer_busy_, false);
  *free = true;
  return static_cast<int>(free - gradient_buffer_busy_.begin());
}

void SliceQueue::finish_forward(int microbatch) {
  const int index = slot_index(microbatch);
  if (plan_.right) {
    const std::size_t bytes = stage_->output_bytes(samples_of(microbatch), batch_->positions);
    send(*plan_.right, Channel::activation, microbatch, stage_->output(index), bytes,
         [this, microbatch, index, bytes] {
           if (!batch_->training) return release(microbatch);
           // The output is sent; its buffer now receives the gradient.
           auto arrived = arrival(microbatch, &Slot::gradient_here);
           if (!stage_->awaits_gradients()) return arrived();
           receive(*plan_.right, Channel::gradient, microbatch, stage_->output(index), bytes, std::move(arrived));
         });
  } else {
    if (batch_->counted_of(microbatch, microbatch_size_) > 0) {
      loss_ += stage_->loss(sample_slot(microbatch));
      if (!batch_->training) correct_ += stage_->correct(sample_slot(microbatch));
    }
    if (!batch_->training) release(microbatch);
  }
}

void SliceQueue::send_input_gradient(int microbatch, int buffer) {
  send(*plan_.left, Channel::gradient, microbatch, stage_->input_gradient(buffer),
       stage_->input_bytes(samples_of(microbatch)), [this, buffer] {
         gradient_buffer_busy_[static_cast<std::size_t>(buffer)] = false;
         hooks_.changed();
       });
}

void SliceQueue::finish_weights(int microbatch) {
  ++weights_;
  release(microbatch);
}

void SliceQueue::release(int microbatch) {
  slot_of(microbatch).microbatch = -1;
  ++released_;
  const int following = microbatch + stage_->sample_slots();
  if (following < microbatches_) call_for_input(following);
  hooks_.left();
}

std::string SliceQueue::message(Channel channel, int microbatch) const {
  const char* what = channel == Channel::activation ? "activation" : "gradient";
  if (map_.chunks == 1) return fmt::format("the {} of microbatch {}", what, microbatch);
  return fmt::format("the {} of microbatch {} in chunk {}", what, microbatch, map_.chunk_of(plan_.slice));
}

void SliceQueue::add_sends(std::vector<Wait>& all) const {
  for (const Sending& sending : sends_) {
    all.push_back({message(sending.channel, sending.microbatch) + " to be taken", sending.rank, sending.since});
  }
}

std::optional<Wait> SliceQueue::awaited(bool forward, runtime::Duration since) const {
  if (forward) {
    const Slot& next = slot_of(forwards_);
    if (!plan_.left || next.microbatch != forwards_ || next.input_here) return std::nullopt;
    return Wait{message(Channel::activation, forwards_), plan_.left, since};
  }
  // A gradient arrives only after its activation was sent.
  const bool taken = std::ranges::none_of(sends_, [this](const Sending& sending) {
    return sending.channel == Channel::activation && sending.microbatch == backwards_;
  });
  if (!stage_->awaits_gradients() || !batch_->training || backwards_ == forwards_ || !taken ||
      slot_of(backwards_).gradient_here)
    return std::nullopt;
  return Wait{message(Channel::gradient, backwards_), plan_.right, since};
}

void SliceQueue::send(int peer, Channel channel, int microbatch, const std::byte* data, std::size_t bytes,
                      runtime::Handler done) {
  sends_.push_back({channel, microbatch, peer, context_->loop.now()});
  const auto begin = context_->trace.now();
  const int receiver = plan_.slice + (channel == Channel::activation ? 1 : -1);
  const auto index = static_cast<std::uint32_t>(map_.message_index(microbatch, receiver));
  context_->transport.send(peer, Tag{channel, index}, runtime::ConstBytes(data, bytes),
                           [this, begin, channel, microbatch, done = std::move(done)] {
                             context_->trace.add(SpanKind::send, Trace::Lane::communicate, begin,
                                                 context_->trace.now(), microbatch);
                             std::erase_if(sends_, [&](const Sending& sending) {
                               return sending.channel == channel && sending.microbatch == microbatch;
                             });
                             done();
                             hooks_.left();
                           });
}

void SliceQueue::receive(int peer, Channel channel, int microbatch, std::byte* data, std::size_t bytes,
                         runtime::Handler done) {
  const auto begin = context_->trace.now();
  const auto index = static_cast<std::uint32_t>(map_.message_index(microbatch, plan_.slice));
  context_->transport.receive(
      peer, Tag{channel, index}, runtime::Bytes(data, bytes), [this, begin, microbatch, done = std::move(done)] {
        context_->trace.add(SpanKind::receive, Trace::Lane::communicate, begin, context_->trace.now(), microbatch);
        done();
      });
}

}  // namespace ranvier::actors
