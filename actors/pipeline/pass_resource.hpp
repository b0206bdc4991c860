// What steps of passes need before they can be queued, one interface for all of it: parameters (ParameterStore), places
// for gradients (GradientBuffers), checkpoints (ActivationCheckpoints). StageActor keeps a list of these and knows
// no more of them.
//
// The steps of passes that use a resource are its *uses*, numbered one after another in the order in which they run:
//
//   first = resource.announce(pass)      what the pass needs, at the latest when it begins; the resource may begin
//   resource.when_ready(use, …)          to bring it
//   resource.provide(use, arrays)        just before the step is queued
//   if (resource.queued(use)) …          just after; then, once the stream has done the step:
//   resource.done(use)
//
// Loop thread only.
#pragma once

#include "models/stage.hpp"
#include "runtime/event_loop.hpp"

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
    bool backward = false;  ///< or weight gradients that waited; forward steps of a backward pass compute again
  };

  virtual ~PassResource() = default;

  [[nodiscard]] virtual bool uses(const models::Stage::PassStep& step) const = 0;
  /// Returns the number of the pass's first use, the others follow. Passes with uses are announced in the order in
  /// which they run.
  virtual std::uint64_t announce(const Announced& pass) = 0;
  /// Uses become ready in order.
  [[nodiscard]] virtual bool ready(std::uint64_t use) const = 0;
  /// Calls `handler` on the loop once it is; one at a time.
  virtual void when_ready(std::uint64_t use, runtime::Handler handler) = 0;
  /// Fills in what the step of a use that is ready works on. What is pointed to stays until done().
  virtual void provide(std::uint64_t use, models::StepArrays& arrays) = 0;
  /// The step's work was queued. Returns whether done() has to be called.
  [[nodiscard]] virtual bool queued(std::uint64_t use) = 0;
  /// The stream has done the step. In the order of the uses.
  virtual void done(std::uint64_t use) = 0;
};

}  // namespace ranvier::actors
