// What the parts of one rank share. A part is made from this, from the rank's share of the model and from its own plan:
//
//   Part(const RankContext& context, const ModelShare& share, const Plan& plan, …the parts that it calls…)
//
// Everything that is referred to outlives the parts. Loop thread only.
#pragma once

#include "collectives/executor.hpp"
#include "offload/tiers.hpp"
#include "runtime/arena.hpp"
#include "runtime/device.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/stream.hpp"
#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

#include <memory>

namespace ranvier::actors {

struct RankContext {
  runtime::EventLoop& loop;
  runtime::Transport& transport;
  runtime::Device& device;
  runtime::Device& host;  ///< for work that needs a processor: the device itself, unless it is a GPU
  runtime::Trace& trace;
  const runtime::Arena& arena;
  offload::Tiers& tiers;
  collectives::Executor& executor;
  // Streams of the device:
  runtime::StreamView compute;  ///< whole: layers, and the optimizer's steps
  runtime::StreamView reduce;   ///< narrow: additions of what arrives
  runtime::StreamView gather;   ///< narrow: copies of parameters
  runtime::StreamView load;     ///< narrow: samples
};

/// Owns what a context refers to, but for loop, transport and device.
class RankResources {
 public:
  /// Allocates what the plans say, and nothing later.
  RankResources(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                const runtime::MemoryPlan& memory = {}, const offload::TierPlan& regions = {},
                const offload::FileOptions& files = {});
  /// As finish(): what is queued uses the arena.
  ~RankResources() { finish(); }
  RankResources(const RankResources&) = delete;
  RankResources& operator=(const RankResources&) = delete;

  [[nodiscard]] const RankContext& context() const noexcept { return context_; }
  /// Waits for what is queued on the streams.
  void finish() noexcept;

 private:
  runtime::Trace trace_;
  std::unique_ptr<runtime::Device> host_;  // null: the device itself computes for the host
  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  RankContext context_;
};

}  // namespace ranvier::actors
