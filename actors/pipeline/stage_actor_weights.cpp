// The weight gradients that wait, of StageActor.
#include "actors/pipeline/stage_actor.hpp"

#include <algorithm>

namespace ranvier::actors {

bool StageActor::weights_ready() const { return !waiting_.empty() && missing(waiting_.front()) == nullptr; }

void StageActor::await_weights() {
  if (waiting_.empty() || awaits_weights_) return;
  PassResource* const resource = missing(waiting_.front());
  if (resource == nullptr) return;
  awaits_weights_ = true;
  const auto index =
      static_cast<std::size_t>(std::find(resources_.begin(), resources_.end(), resource) - resources_.begin());
  resource->when_ready(waiting_.front().uses[index], [this] {
    awaits_weights_ = false;
    next();
  });
}

/// What has come meanwhile may go before what would be chosen.
void StageActor::look_at_messages() {
  if (looks_) return;
  looks_ = true;
  // The shortest time: whatever comes at this moment comes before.
  context_->loop.after(std::chrono::nanoseconds(1), [this] {
    looks_ = false;
    looked_ = true;
    next();
    looked_ = false;
  });
}

/// Their order is fixed, so that what they need can come before they are chosen.
void StageActor::announce_weights(int microbatch) {
  Pass& pass = waiting_.emplace_back(Pass{.direction = Direction::weights, .microbatch = microbatch});
  pass.steps = weights_pass(*stage_);
  for (PassResource* resource : resources_) {
    pass.uses.push_back(resource->announce({.steps = pass.steps,
                                            .microbatch = microbatch,
                                            .slot = microbatch % stage_->slots(),
                                            .samples = samples_of(microbatch),
                                            .training = true,
                                            .backward = true}));
  }
}

/// Queues a call of a layer; all calls whose places are there, once no other pass will come. Parts of a call hand each
/// other what is in the workspace, so that nothing may come between them.
void StageActor::advance_weights() {
  Pass& pass = waiting_.front();
  trace_pass(pass, true);
  std::size_t layer = pass.steps[pass.next].layer;
  while (true) {
    queue(pass);
    if (pass.next == pass.steps.size()) break;
    PassResource* const resource = missing(pass);
    const bool same_call = pass.steps[pass.next].layer == layer;
    if (resource != nullptr && same_call) {
      trace_pass(pass, false);
      const auto index =
          static_cast<std::size_t>(std::find(resources_.begin(), resources_.end(), resource) - resources_.begin());
      resource->when_ready(pass.uses[index], [this] { advance_weights(); });
      return context_->loop.after_work(context_->compute, name_of(pass), [] {});  // what came before it goes on
    }
    if (!same_call && (resource != nullptr || backwards_ < microbatches_)) break;
    layer = pass.steps[pass.next].layer;
  }
  trace_pass(pass, false);
  context_->loop.after_work(context_->compute, name_of(pass),
                            [this, microbatch = pass.microbatch, over = pass.next == pass.steps.size()] {
                              computing_ = false;
                              become_idle();
                              if (over) finish_weights(microbatch);
                              next();
                            });
}

void StageActor::finish_weights(int microbatch) {
  waiting_.pop_front();
  ++weights_;
  release(microbatch);
}

}  // namespace ranvier::actors
