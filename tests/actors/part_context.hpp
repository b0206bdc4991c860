// What a part of a rank is made from, without the rank: for tests of one part.
#pragma once

#include "actors/rank/rank_context.hpp"
#include "runtime/simulation.hpp"

#include <memory>

namespace ranvier::tests {

class PartContext {
 public:
  /// All references outlive this. Allocates what the plans say.
  PartContext(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
              const runtime::MemoryPlan& memory = {}, const offload::TierPlan& regions = {},
              const offload::FileOptions& files = {})
      : compute_(device.make_stream("compute", runtime::StreamWidth::whole)),
        reduce_(device.make_stream("reduce", runtime::StreamWidth::one)),
        gather_(device.make_stream("gather", runtime::StreamWidth::one)),
        load_(device.make_stream("load", runtime::StreamWidth::one)),
        trace_(transport.rank()),
        arena_(device, memory),
        tiers_(loop, device, regions, files, arena_, transport.rank()),
        executor_(loop, transport, *reduce_),
        context_{loop,   transport, device,     trace_,    arena_,    tiers_,
                 executor_, *compute_, *reduce_, *gather_, *load_} {}

  [[nodiscard]] const actors::RankContext& operator*() const noexcept { return context_; }
  [[nodiscard]] const actors::RankContext* operator->() const noexcept { return &context_; }

 private:
  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Trace trace_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  actors::RankContext context_;
};

}  // namespace ranvier::tests
