// Interface of resources that steps of passes need, and the queue of accesses behind it (Accesses). Resources are
// parameters (ParameterStore), gradient buffers (MicrobatchReduction) and checkpoints (ActivationCheckpoints). Steps
// that need a resource are its accesses (`use`), numbered in order. Loop thread only.
//
//   first = resource.announce(pass)      at the latest when the pass starts; the resource may prefetch
//   resource.when_ready(use, …); resource.provide(use, arrays)          just before the step is queued
//   if (resource.queued(use)) … resource.done(use)                      after the stream has finished the step
#pragma once

#include "models/core/stage.hpp"
#include "runtime/base/error.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

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
  /// Sets the arrays of a ready access; the spans stay valid until queued(), their memory until done().
  virtual void provide(std::uint64_t use, models::StepArrays& arrays) = 0;
  /// Call it after the step's work was queued. Returns whether done() must be called.
  [[nodiscard]] virtual bool queued(std::uint64_t use) = 0;
  /// Call it after the stream has finished the step, in the order of accesses.
  virtual void done(std::uint64_t use) = 0;
};

/// Announced accesses to a resource that are not done, by number, and the handler that waits for one of them.
template <typename Use>
class Accesses {
 public:
  /// `what`: the resource in messages, "parameters". `ready`: returns whether the access with this number is ready.
  Accesses(runtime::EventLoop& loop, const char* what, std::function<bool(std::uint64_t)> ready)
      : loop_(&loop), what_(what), ready_(std::move(ready)) {}

  [[nodiscard]] bool empty() const noexcept { return uses_.empty(); }
  /// Number of the next announced access.
  [[nodiscard]] std::uint64_t next() const noexcept { return first_ + uses_.size(); }
  Use& add(Use use) { return uses_.emplace_back(std::move(use)); }
  /// Number of the first access that is not done.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  [[nodiscard]] Use& operator[](std::uint64_t use) { return uses_[use - first_]; }
  [[nodiscard]] const Use& operator[](std::uint64_t use) const { return uses_[use - first_]; }
  /// Removes the first access, which must have this number.
  Use remove(std::uint64_t use) {
    expect(use == first_, "access {} to {} ends before access {}", use, what_, first_);
    Use removed = std::move(uses_.front());
    uses_.pop_front();
    ++first_;
    return removed;
  }

  /// Posts the handler when the access is ready: now, or in a later check().
  void when_ready(std::uint64_t use, runtime::Handler handler) {
    expect(!waiting_, "a pass waits for two accesses to {}", what_);
    waiting_use_ = use;
    waiting_ = std::move(handler);
    check();
  }
  [[nodiscard]] bool awaited() const noexcept { return waiting_ != nullptr; }
  void check() {
    if (waiting_ && ready_(waiting_use_)) loop_->post(std::exchange(waiting_, nullptr));
  }

 private:
  runtime::EventLoop* loop_;
  const char* what_;
  std::function<bool(std::uint64_t)> ready_;
  std::deque<Use> uses_;
  std::uint64_t first_ = 0;
  std::uint64_t waiting_use_ = 0;
  runtime::Handler waiting_;
};

}  // namespace ranvier::actors
