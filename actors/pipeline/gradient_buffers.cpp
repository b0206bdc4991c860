#include "actors/pipeline/gradient_buffers.hpp"

#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::actors {

std::uint64_t GradientBuffers::announce(const Announced& pass) {
  const std::uint64_t first = first_use_ + uses_.size();
  if (!pass.backward) return first;
  std::uint64_t number = gradients_->announce(pass.steps, pass.microbatch);
  for (const models::Stage::PassStep& step : pass.steps) {
    if (uses(step)) uses_.push_back({step, pass.microbatch, number++});
  }
  return first;
}

void GradientBuffers::when_ready(std::uint64_t use, runtime::Handler handler) {
  gradients_->when_ready(use_of(use).number, std::move(handler));
}

void GradientBuffers::provide(std::uint64_t use, models::StepArrays& arrays) {
  const Use& writes = use_of(use);
  arrays.gradients = gradients_->places(writes.number, writes.step);
  arrays.accumulate = gradients_->accumulates(writes.microbatch);
}

bool GradientBuffers::queued(std::uint64_t use) {
  const Use& writes = use_of(use);
  gradients_->queued(writes.number, writes.step);
  if (gradients_->listens(writes.microbatch)) return true;
  forget(use);
  return false;
}

void GradientBuffers::done(std::uint64_t use) {
  const Use written = use_of(use);
  forget(use);
  gradients_->written(written.number, written.step, written.microbatch);
}

void GradientBuffers::forget(std::uint64_t use) {
  expect(use == first_use_, "access {} to gradients ends before access {}", use, first_use_);
  uses_.pop_front();
  ++first_use_;
}

}  // namespace ranvier::actors
