// What the parts of one rank share, for tests of a part alone: streams, memory and tiers of what the part planned.
#pragma once

#include "actors/rank/rank_context.hpp"

#include <memory>

namespace ranvier::tests {

class LoneContext {
 public:
  /// `plans` are finished; all but them outlive it.
  LoneContext(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
              const runtime::MemoryPlan& memory, const offload::TierPlan& regions,
              const offload::FileOptions& files = {})
      : compute_(device.make_stream("compute", runtime::StreamWidth::whole)),
        reduce_(device.make_stream("reduce", runtime::StreamWidth::one)),
        gather_(device.make_stream("gather", runtime::StreamWidth::one)),
        load_(device.make_stream("load", runtime::StreamWidth::one)),
        trace_(transport.rank()),
        arena_(device, memory),
        tiers_(loop, device, regions, files, arena_, transport.rank()),
        executor_(loop, transport, *reduce_),
        context_{loop,   transport, device,    trace_,   arena_,   tiers_,
                 executor_, *compute_, *reduce_, *gather_, *load_} {}
  ~LoneContext() {
    for (auto* stream : {load_.get(), gather_.get(), reduce_.get(), compute_.get()}) stream->synchronize();
  }

  [[nodiscard]] const actors::RankContext& context() const { return context_; }
  [[nodiscard]] const runtime::Arena& arena() const { return arena_; }

 private:
  std::unique_ptr<runtime::Stream> compute_, reduce_, gather_, load_;
  runtime::Trace trace_;
  runtime::Arena arena_;
  offload::Tiers tiers_;
  collectives::Executor executor_;
  actors::RankContext context_;
};

}  // namespace ranvier::tests
