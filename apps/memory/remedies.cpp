#include "apps/memory/remedies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ranvier::apps {

using actors::TierKind;
using actors::TrainerOptions;
using collectives::Scope;
using runtime::MemoryKind;
using Way = Remedy::Way;

namespace {

/// Shardings and tiers that reduce each kind of state. Each named sharding shards one more kind.
struct States {
  MemoryKind kind;
  const char* sharding;
  Scope collectives::Sharding::* scope;
  const char* tier_flag;
  TierKind actors::TierOptions::* tier;
};
constexpr States all_states[] = {
    {MemoryKind::optimizer, "zero1", &collectives::Sharding::optimizer, "--optimizer-tier",
     &actors::TierOptions::optimizer},
    {MemoryKind::gradients, "zero2", &collectives::Sharding::gradients, "--gradient-tier",
     &actors::TierOptions::gradients},
    {MemoryKind::parameters, "zero3", &collectives::Sharding::parameters, "--parameter-tier",
     &actors::TierOptions::parameters},
};

void add_files(std::vector<Remedy>& all, const TrainerOptions& options) {
  for (const States& states : all_states) {
    if (options.tiers.*states.tier == TierKind::nvme) continue;
    all.push_back({.flags = {{states.tier_flag, "nvme"}},
                   .words = fmt::format("{} nvme with --nvme DIR", states.tier_flag),
                   .kinds = {states.kind},
                   .way = Way::to_files});
  }
}

void add_shardings(std::vector<Remedy>& all, const TrainerOptions& options) {
  for (const States& states : all_states) {
    const auto sharding = collectives::parse_sharding(states.sharding);
    if (options.sharding == sharding) continue;
    Remedy& remedy = all.emplace_back();
    remedy.flags = {{"--shard", states.sharding}};
    remedy.words = fmt::format("--shard {}", states.sharding);
    if (options.sharding.*states.scope == Scope::none) remedy.kinds = {states.kind};
    remedy.make = [sharding](TrainerOptions& o) { o.sharding = sharding; };
  }
}

/// Shards frozen parameters first and keeps the sharding of trained ones; then shards trained ones.
void add_shardings_of_part(std::vector<Remedy>& all, const TrainerOptions& options) {
  const auto [frozen, trained] = options.shardings();
  const auto zero3 = collectives::parse_sharding("zero3");
  if (frozen.parameters != Scope::global) {
    const std::string kept = to_string(trained);
    Remedy& remedy = all.emplace_back();
    remedy.flags = {{"--shard", "zero3"}, {"--shard-trained", kept}};
    remedy.words = fmt::format("--shard zero3 --shard-trained {}", kept);
    if (frozen.parameters == Scope::none) remedy.kinds = {MemoryKind::parameters};
    remedy.make = [zero3, trained](TrainerOptions& o) {
      o.sharding = zero3;
      o.trained_sharding = trained;
    };
  }
  for (const States& states : all_states) {
    const auto sharding = collectives::parse_sharding(states.sharding);
    if (trained == sharding) continue;
    Remedy& remedy = all.emplace_back();
    remedy.flags = {{"--shard-trained", states.sharding}};
    remedy.words = fmt::format("--shard-trained {}", states.sharding);
    if (trained.*states.scope == Scope::none) remedy.kinds = {states.kind};
    remedy.make = [sharding](TrainerOptions& o) { o.trained_sharding = sharding; };
  }
}

/// Remedies for activations, messages and workspace.
void add_passes(std::vector<Remedy>& all, const TrainerOptions& options) {
  if (options.saved_activations == models::SavedActivations::all) {
    all.push_back({.flags = {{"--saved-activations", "few"}},
                   .words = "--saved-activations few",
                   .kinds = {MemoryKind::activations},
                   .make = [](TrainerOptions& o) { o.saved_activations = models::SavedActivations::few; }});
  }
  if (!options.recompute_auto) {
    all.push_back({.flags = {{"--recompute", "auto"}},
                   .words = "--recompute auto",
                   .kinds = {MemoryKind::activations},
                   .make = [](TrainerOptions& o) {
                     o.recompute = 0;
                     o.recompute_auto = true;
                   }});
  }
  if (std::min(options.microbatch_size, options.batch_size / options.grid.g_data) > 1) {
    all.push_back({.flags = {{"--microbatch-size", "1"}},
                   .words = "a smaller --microbatch-size",
                   .kinds = {MemoryKind::activations, MemoryKind::messages, MemoryKind::workspace},
                   .make = [](TrainerOptions& o) { o.microbatch_size = 1; }});
  }
}

/// Remedies that cost much speed or change results: named in messages, not planned.
void add_rest(std::vector<Remedy>& all, const TrainerOptions& options) {
  const auto add = [&all](bool possible, const char* words, std::vector<MemoryKind> kinds) {
    if (possible) all.push_back({.words = words, .kinds = std::move(kinds)});
  };
  const bool full = options.precision.compute == runtime::DType::f32;
  add(options.chunks_per_rank > 1, "fewer --chunks-per-rank", {MemoryKind::activations, MemoryKind::messages});
  add(options.pipeline_limit > 1, "a smaller --pipeline-limit", {MemoryKind::activations});
  add(options.prefetch > 0, "--prefetch 0", {MemoryKind::messages, MemoryKind::workspace});
  add(options.threads > 1, "fewer --threads", {MemoryKind::workspace});
  add(full, "--precision bf16", {MemoryKind::parameters, MemoryKind::activations});
  add(!full && options.precision.gradient == runtime::DType::f32, "--gradient-dtype half", {MemoryKind::gradients});
}

void add_host(std::vector<Remedy>& all, const TrainerOptions& options) {
  const auto on_device = [&options](TierKind actors::TierOptions::* tier) {
    return options.tiers.*tier == TierKind::device;
  };
  if (on_device(&actors::TierOptions::optimizer)) {
    all.push_back({.flags = {{"--optimizer-tier", "host"}},
                   .words = "--optimizer-tier host",
                   .kinds = {MemoryKind::optimizer},
                   .way = Way::to_host,
                   .make = [](TrainerOptions& o) { o.tiers.optimizer = TierKind::host; }});
  }
  if (on_device(&actors::TierOptions::parameters) || on_device(&actors::TierOptions::gradients)) {
    all.push_back({.flags = {{"--offload", "infinity-cpu"}},
                   .words = "--offload infinity-cpu",
                   .kinds = {MemoryKind::parameters, MemoryKind::gradients, MemoryKind::optimizer},
                   .way = Way::to_host,
                   .make = [](TrainerOptions& o) {
                     o.tiers.optimizer = o.tiers.parameters = o.tiers.gradients = TierKind::host;
                     if (o.recompute > 0 || o.recompute_auto) o.tiers.activations = TierKind::host;
                   }});
  }
}

}  // namespace

std::vector<Remedy> remedies_of(const TrainerOptions& options, bool part) {
  std::vector<Remedy> all;
  add_files(all, options);
  add_passes(all, options);
  if (options.grid.g_data > 1) (part ? add_shardings_of_part : add_shardings)(all, options);
  add_rest(all, options);
  add_host(all, options);
  return all;
}

}  // namespace ranvier::apps
