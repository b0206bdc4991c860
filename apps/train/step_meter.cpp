#include "apps/train/step_meter.hpp"

namespace ranvier::apps {

void StepMeter::step(const runtime::Trace& trace, std::span<const std::uint64_t> sent,
                     const offload::FileBytes& files) {
  using runtime::SpanKind;
  std::array<double, figures> now{};
  now[seconds] = runtime::seconds(trace.now());
  for (const SpanKind kind : {SpanKind::forward, SpanKind::backward, SpanKind::weights, SpanKind::optimizer})
    now[busy] += trace.seconds(kind);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    const bool beside = nodes_[peer] == nodes_[static_cast<std::size_t>(rank_)];
    now[beside ? intra : inter] += static_cast<double>(sent[peer]);
  }
  now[read] = static_cast<double>(files.read);
  now[written] = static_cast<double>(files.written);
  if (ended_ > 0) {
    for (std::size_t i = 0; i < figures; ++i) usual_[i].add(now[i] - last_[i]);
  }
  ++ended_;
  last_ = now;
}

StepMeter::UsualStep StepMeter::usual() const {
  return {.seconds = usual_[seconds].value(),
          .busy_seconds = usual_[busy].value(),
          .bytes_intra = usual_[intra].value(),
          .bytes_inter = usual_[inter].value(),
          .bytes_read = usual_[read].value(),
          .bytes_written = usual_[written].value(),
          .steps = ended_ > 0 ? ended_ - 1 : 0};
}

}  // namespace ranvier::apps
