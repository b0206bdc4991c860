// Deferred weight gradients of StageActor.
#include "actors/pipeline/stage_actor.hpp"

#include <utility>

namespace ranvier::actors {

bool StageActor::weights_ready() const { return !waiting_.empty() && !missing(waiting_.front()); }

void StageActor::await_weights() {
  if (waiting_.empty() || awaits_weights_) return;
  const auto lacks = missing(waiting_.front());
  if (!lacks) return;
  awaits_weights_ = true;
  lacks->resource->when_ready(lacks->use, [this] {
    awaits_weights_ = false;
    next();
  });
}

/// Handles pending messages first, since they may change the choice.
void StageActor::look_at_messages() {
  if (looks_) return;
  looks_ = true;
  context_->loop.after(runtime::Duration(0), [this] {
    looks_ = false;
    looked_ = true;
    next();
    looked_ = false;
  });
}

/// Announces weight gradients early: their order is fixed, so their resources can be prepared before they are chosen.
void StageActor::announce_weights(std::size_t chunk, int microbatch) {
  Pass& pass =
      waiting_.emplace_back(Pass{.direction = Direction::weights, .chunk = chunk, .microbatch = microbatch});
  pass.steps = weights_pass(slices_[chunk].stage());
  announce_uses(pass, true);
}

/// Queues one layer call; after the last backward pass, all calls whose resources are ready. Phases of a call share
/// data in the workspace, so nothing else may run between them.
void StageActor::advance_weights() {
  Pass& pass = waiting_.front();
  trace_pass(pass, true);
  std::size_t layer = pass.steps[pass.next].layer;
  while (true) {
    queue(pass);
    if (pass.next == pass.steps.size()) break;
    const auto lacks = missing(pass);
    const bool same_call = pass.steps[pass.next].layer == layer;
    if (lacks && same_call) {
      trace_pass(pass, false);
      lacks->resource->when_ready(lacks->use, [this] { advance_weights(); });
      return context_->loop.after_work(context_->compute, name_of(pass), [] {});  // earlier steps still run
    }
    if (!same_call && (lacks || progress().backwards < order_.passes())) break;
    layer = pass.steps[pass.next].layer;
  }
  trace_pass(pass, false);
  all_queued(name_of(pass), [this, over = pass.next == pass.steps.size()] { end_weights(over); });
}

/// Calls of the first deferred weight gradients are finished; `over`: all of them.
void StageActor::end_weights(bool over) {
  if (over) {
    const auto [chunk, microbatch] = std::pair(waiting_.front().chunk, waiting_.front().microbatch);
    waiting_.pop_front();
    return finish(Direction::weights, chunk, microbatch);
  }
  pass_done();
  next();
}

}  // namespace ranvier::actors
