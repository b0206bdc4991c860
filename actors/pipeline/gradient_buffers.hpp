// Pass resource for the buffers that backward steps write gradients to. GradientSync owns the buffers and is notified
// when they are written. Loop thread only.
#pragma once

#include "actors/gradients/gradient_sync.hpp"
#include "actors/schedule/pass_resource.hpp"

#include <cstdint>
#include <deque>

namespace ranvier::actors {

class GradientBuffers final : public PassResource {
 public:
  /// `gradients` must outlive this object.
  explicit GradientBuffers(GradientSync& gradients) : gradients_(&gradients) {}

  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override { return !step.needs_parameters(); }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override { return gradients_->ready(use_of(use).number); }
  void when_ready(std::uint64_t use, runtime::Handler handler) override;
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t use) override;
  void done(std::uint64_t use) override;

 private:
  struct Use {
    models::Stage::PassStep step;
    int microbatch = 0;
    std::uint64_t number = 0;  // number of the step in GradientSync
  };

  [[nodiscard]] const Use& use_of(std::uint64_t use) const { return uses_[use - first_use_]; }
  void forget(std::uint64_t use);

  GradientSync* gradients_;
  std::deque<Use> uses_;         // announced accesses that are not done
  std::uint64_t first_use_ = 0;  // number of uses_.front()
};

}  // namespace ranvier::actors
