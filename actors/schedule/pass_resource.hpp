// Interface of resources that steps of passes need: parameters (ParameterStore), gradient buffers (GradientSync),
// checkpoints (ActivationCheckpoints). Loop thread only. Steps that need a resource are its accesses (`use`), numbered
// in order:
//
//   first = resource.announce(pass)      at the latest when the pass starts; the resource may prefetch
//   resource.when_ready(use, …); resource.provide(use, arrays)          just before the step is queued
//   if (resource.queued(use)) … resource.done(use)                      after the stream has finished the step
#pragma once

#include "models/core/stage.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstdint>

namespace ranvier::actors {

class PassResource {
 public:
  /// A pass of one microbatch.
  struct Announced {
    const models::Stage::Pass& steps;
    int microbatch = 0;
    int slot = 0;
    int samples = 1;
    bool training = true;   ///< false: no backward pass follows
    bool backward = false;  ///< backward pass or deferred weight gradients; its forward steps are recomputation
  };

  virtual ~PassResource() = default;

  [[nodiscard]] virtual bool uses(const models::Stage::PassStep& step) const = 0;
  /// Returns the number of the pass's first access; the others follow. Passes must be announced in the order in which
  /// they run.
  virtual std::uint64_t announce(const Announced& pass) = 0;
  /// Returns whether an access is ready. Accesses become ready in order.
  [[nodiscard]] virtual bool ready(std::uint64_t use) const = 0;
  /// Calls `handler` on the loop when the access is ready; one at a time.
  virtual void when_ready(std::uint64_t use, runtime::Handler handler) = 0;
  /// Sets the arrays of a ready access; they stay valid until done().
  virtual void provide(std::uint64_t use, models::StepArrays& arrays) = 0;
  /// Call it after the step's work was queued. Returns whether done() must be called.
  [[nodiscard]] virtual bool queued(std::uint64_t use) = 0;
  /// Call it after the stream has finished the step, in the order of accesses.
  virtual void done(std::uint64_t use) = 0;
};

}  // namespace ranvier::actors
