#include "apps/train/plan/host_memory.hpp"

#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace ranvier::apps {
namespace {

using collectives::Scope;
using runtime::MemoryKind;
using runtime::MemorySpace;

bool computes_in_host_memory(const TrainOptions& options) { return options.device.device != DeviceChoice::cuda; }

std::size_t host_bytes(const TrainOptions& options, const runtime::MemoryPlan& plan, MemoryKind kind) {
  std::size_t bytes = plan.bytes(MemorySpace::pinned, kind) + plan.bytes(MemorySpace::host, kind);
  if (computes_in_host_memory(options)) bytes += plan.bytes(MemorySpace::device, kind);
  return bytes;
}

/// What makes this kind smaller and is not done yet. Host memory is all that a cpu device has: what would go from one
/// to the other is no remedy.
std::vector<std::string> remedies(const TrainOptions& options, MemoryKind kind) {
  std::vector<std::string> all;
  const auto add = [&all](bool possible, const char* remedy) {
    if (possible) all.emplace_back(remedy);
  };
  const bool rows = options.grid.shape.g_data > 1;
  const bool full = options.precision.types.compute == runtime::DType::f32;
  const collectives::Sharding& shard = options.shard.sharding;
  const TierOptions& tiers = options.tiers;
  const auto off = [](actors::TierKind tier) { return tier == actors::TierKind::nvme; };
  switch (kind) {
    case MemoryKind::parameters:
      add(!off(tiers.parameters), "--parameter-tier nvme with --nvme DIR");
      add(rows && shard.parameters == Scope::none, "--shard zero3");
      add(full, "--precision bf16");
      break;
    case MemoryKind::gradients:
      add(!off(tiers.gradients), "--gradient-tier nvme with --nvme DIR");
      add(rows && shard.gradients == Scope::none, "--shard zero2");
      add(!full && options.precision.types.gradient == runtime::DType::f32, "--gradient-dtype half");
      break;
    case MemoryKind::optimizer:
      add(!off(tiers.optimizer), "--optimizer-tier nvme with --nvme DIR");
      add(rows && shard.optimizer == Scope::none, "--shard zero1");
      break;
    case MemoryKind::activations:
      add(options.batch.microbatch_size > 1, "a smaller --microbatch-size");
      add(options.batch.recompute.mode == Recompute::Mode::off, "--recompute auto");
      add(options.batch.pipeline_limit > 1, "a smaller --pipeline-limit");
      add(full, "--precision bf16");
      break;
    case MemoryKind::messages:
    case MemoryKind::workspace:
      add(options.batch.microbatch_size > 1, "a smaller --microbatch-size");
      add(options.shard.prefetch.value_or(1) > 0, "--prefetch 0");
      add(kind == MemoryKind::workspace && options.device.threads != 1, "fewer --threads");
      break;
  }
  all.emplace_back("a smaller model");
  all.emplace_back("more machines");
  return all;
}

}  // namespace

std::size_t host_bytes(const TrainOptions& options, const runtime::MemoryPlan& plan) {
  std::size_t bytes = plan.bytes(MemorySpace::pinned) + plan.bytes(MemorySpace::host);
  if (computes_in_host_memory(options)) bytes += plan.bytes(MemorySpace::device);
  return bytes;
}

void check_host_memory(const TrainOptions& options, const runtime::MemoryPlan& plan, std::size_t needed_bytes,
                       int ranks, const runtime::MemoryLimit& limit) {
  if (needed_bytes <= limit.bytes) return;
  auto largest = MemoryKind::parameters;
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    if (host_bytes(options, plan, kind) > host_bytes(options, plan, largest)) largest = kind;
  }
  fail(ErrorCode::memory,
       "the {} of this machine would take {} of its memory, and {} may be taken: {}\n{}most of it is for {}, {} of "
       "this rank; what helps: {}",
       ranks == 1 ? std::string("rank") : fmt::format("{} ranks", ranks), runtime::format_bytes(needed_bytes),
       runtime::format_bytes(limit.bytes), limit.reason, plan.table(),
       largest == MemoryKind::optimizer ? "optimizer states" : to_string(largest),
       runtime::format_bytes(host_bytes(options, plan, largest)), fmt::join(remedies(options, largest), ", "));
}

}  // namespace ranvier::apps
