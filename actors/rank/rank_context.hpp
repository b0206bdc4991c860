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

namespace ranvier::actors {

struct RankContext {
  runtime::EventLoop& loop;
  runtime::Transport& transport;
  runtime::Device& device;
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

}  // namespace ranvier::actors
