#include "apps/train/totals.hpp"

#include "actors/base/gather.hpp"
#include "runtime/device/memory_limit.hpp"

#include <cstring>
#include <utility>

namespace ranvier::apps {

void StepMeter::step(const runtime::Trace& trace, std::span<const std::uint64_t> sent,
                     const offload::FileBytes& files) {
  using runtime::SpanKind;
  UsualStep now{.seconds = runtime::seconds(trace.now()),
                .bytes_read = static_cast<double>(files.read),
                .bytes_written = static_cast<double>(files.written)};
  for (const SpanKind kind : {SpanKind::forward, SpanKind::backward, SpanKind::weights, SpanKind::optimizer})
    now.busy_seconds += trace.seconds(kind);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    const bool beside = nodes_[peer] == nodes_[static_cast<std::size_t>(rank_)];
    (beside ? now.bytes_intra : now.bytes_inter) += static_cast<double>(sent[peer]);
  }
  for (std::size_t i = 0; i < figures.size() && ended_ > 0; ++i) usual_[i].add(now.*figures[i] - last_.*figures[i]);
  ++ended_;
  last_ = now;
}

StepMeter::UsualStep StepMeter::usual() const {
  UsualStep step{.steps = ended_ > 0 ? ended_ - 1 : 0};
  for (std::size_t i = 0; i < figures.size(); ++i) step.*figures[i] = usual_[i].value();
  return step;
}

namespace {

RankTotals totals_of(const actors::Rank& rank, const StepMeter& meter, double seconds) {
  using runtime::MemorySpace;
  using runtime::SpanKind;
  const runtime::Trace& trace = rank.context().trace;
  const runtime::MemoryPlan& memory = rank.plan().memory;
  return {.seconds = seconds,
          .forward = trace.seconds(SpanKind::forward),
          .backward = trace.seconds(SpanKind::backward),
          .weights = trace.seconds(SpanKind::weights),
          .optimizer = trace.seconds(SpanKind::optimizer),
          .wait = trace.seconds(SpanKind::wait),
          .gather = trace.seconds(SpanKind::gather),
          .reduce = trace.seconds(SpanKind::reduce),
          .send = trace.seconds(SpanKind::send),
          .files = trace.seconds_of_files_alone(),
          .checkpoint = rank.seconds_waited_for_checkpoints(),
          .step = meter.usual(),
          .planned_bytes = memory.bytes(MemorySpace::device) + memory.bytes(MemorySpace::pinned) +
                           memory.bytes(MemorySpace::host),
          .device_bytes = rank.context().compute.device().used_bytes(),
          .peak_resident_bytes = runtime::peak_resident_bytes(),
          .answers = rank.answers()};
}

}  // namespace

void gather_totals(const RankRun& run, const actors::Rank& rank, const StepMeter& meter, double seconds,
                   std::function<void(std::vector<RankTotals>)> done) {
  const RankTotals mine = totals_of(rank, meter, seconds);
  actors::gather(run.transport, std::string(reinterpret_cast<const char*>(&mine), sizeof mine),
                 [done = std::move(done)](std::vector<std::string> blocks) {
                   std::vector<RankTotals> all(blocks.size());
                   for (std::size_t r = 0; r < blocks.size(); ++r)
                     std::memcpy(&all[r], blocks[r].data(), sizeof all[r]);
                   done(std::move(all));
                 });
}

}  // namespace ranvier::apps
