#include "actors/base/rank_context.hpp"

#include <exception>
#include <utility>

namespace ranvier::actors {

using runtime::StreamWidth;

namespace {

std::unique_ptr<runtime::Device> host_beside(const runtime::Device& device, runtime::EventLoop& loop) {
  if (!device.apart()) return nullptr;
  auto host = device.make_host_device(1);
  host->on_failure([&loop](std::exception_ptr error) { loop.stop(std::move(error)); });
  return host;
}

}  // namespace

void finish_streams(std::initializer_list<runtime::Stream*> streams) noexcept {
  for (runtime::Stream* const stream : streams) {
    try {
      stream->synchronize();
    } catch (const std::exception&) {
    }
  }
}

RankResources::RankResources(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                             const runtime::MemoryPlan& memory, const offload::TierPlan& regions,
                             const offload::FileOptions& files)
    : trace_(transport.rank(), loop),
      host_(host_beside(device, loop)),
      compute_(device.make_stream("compute", StreamWidth::whole)),
      reduce_(device.make_stream("reduce", StreamWidth::one)),
      gather_(device.make_stream("gather", StreamWidth::one)),
      load_(device.make_stream("load", StreamWidth::one)),
      arena_(device, memory),
      tiers_(loop, device, regions, files, arena_, transport.rank()),
      executor_(loop, transport, *reduce_),
      context_{loop,     transport, device, host_ ? *host_ : device, trace_, arena_, tiers_, executor_, *compute_,
               *reduce_, *gather_,  *load_} {
  tiers_.record(trace_);
}

}  // namespace ranvier::actors
