// Resources shared by the actors of a rank. An actor's constructor has the form:
//
//   Actor(const RankContext& context, const ModelShare& share, const Plan& plan, …actors that it calls…)
//
// All referenced objects must outlive the actors. Loop thread only.
#pragma once

#include "collectives/communicators/executor.hpp"
#include "offload/tiers.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/trace/trace.hpp"
#include "runtime/transport/transport.hpp"

#include <initializer_list>
#include <memory>

namespace ranvier::actors {

struct RankContext {
  runtime::EventLoop& loop;
  runtime::Transport& transport;
  runtime::Device& device;
  runtime::Device& host;  ///< device for CPU work: `device` itself unless that is a GPU
  runtime::Trace& trace;
  const runtime::Arena& arena;
  offload::Tiers& tiers;
  collectives::Executor& executor;
  // Streams of the device:
  runtime::StreamView compute;  ///< all threads: layers and optimizer steps
  runtime::StreamView reduce;   ///< narrow: sums of received data
  runtime::StreamView gather;   ///< narrow: copies of parameters
  runtime::StreamView load;     ///< narrow: samples
};

/// Waits for all queued work on the streams. Its failures are reported through Device::on_failure.
void finish_streams(std::initializer_list<runtime::Stream*> streams) noexcept;

/// Owns the context's resources except loop, transport and device.
class RankResources {
 public:
  /// Allocates all planned memory; nothing is allocated later.
  RankResources(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                const runtime::MemoryPlan& memory = {}, const offload::TierPlan& regions = {},
                const offload::FileOptions& files = {});
  /// Calls finish(), because queued work uses the arena.
  ~RankResources() { finish(); }
  RankResources(const RankResources&) = delete;
  RankResources& operator=(const RankResources&) = delete;

  [[nodiscard]] const RankContext& context() const noexcept { return context_; }
  /// Waits for all queued work on the streams.
  void finish() noexcept { finish_streams({load_.get(), gather_.get(), reduce_.get(), compute_.get()}); }

 private:
  runtime::Trace trace_;
  std::unique_ptr<runtime::Device> host_;  // null: the device does the CPU work
  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  RankContext context_;
};

}  // namespace ranvier::actors
