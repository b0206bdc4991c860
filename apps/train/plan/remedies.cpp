#include "apps/train/plan/remedies.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::apps {

using actors::TierKind;
using actors::TrainerOptions;
using collectives::Scope;
using runtime::MemoryKind;
using Way = Remedy::Way;

namespace {

constexpr std::pair<const char*, TierKind actors::TierOptions::*> tiers_of_states[] = {
    {"--parameter-tier", &actors::TierOptions::parameters},
    {"--gradient-tier", &actors::TierOptions::gradients},
    {"--optimizer-tier", &actors::TierOptions::optimizer}};
constexpr MemoryKind kinds_of_states[] = {MemoryKind::parameters, MemoryKind::gradients, MemoryKind::optimizer};

/// Each named sharding gives the states of one more kind to their owners.
constexpr std::pair<const char*, Scope collectives::Sharding::*> scopes_of_states[] = {
    {"zero1", &collectives::Sharding::optimizer},
    {"zero2", &collectives::Sharding::gradients},
    {"zero3", &collectives::Sharding::parameters}};

void add_files(std::vector<Remedy>& all, const TrainerOptions& options) {
  for (std::size_t i = 0; i < std::size(tiers_of_states); ++i) {
    const auto& [flag, tier] = tiers_of_states[i];
    if (options.tiers.*tier == TierKind::nvme) continue;
    all.push_back({.flag = flag,
                   .value = "nvme",
                   .words = std::string(flag) + " nvme with --nvme DIR",
                   .kinds = {kinds_of_states[i]},
                   .way = Way::to_files});
  }
}

void add_shardings(std::vector<Remedy>& all, const TrainerOptions& options) {
  if (options.grid.g_data == 1) return;
  for (const auto& [name, scope] : scopes_of_states) {
    const auto sharding = collectives::parse_sharding(name);
    if (options.sharding == sharding) continue;
    Remedy& remedy = all.emplace_back();
    remedy.flag = "--shard";
    remedy.value = name;
    remedy.words = "--shard " + remedy.value;
    if (options.sharding.*scope == Scope::none)
      remedy.kinds = {scope == &collectives::Sharding::optimizer   ? MemoryKind::optimizer
                      : scope == &collectives::Sharding::gradients ? MemoryKind::gradients
                                                                   : MemoryKind::parameters};
    remedy.make = [sharding](TrainerOptions& o) { o.sharding = sharding; };
  }
}

/// Activations and what travels or is gathered.
void add_passes(std::vector<Remedy>& all, const TrainerOptions& options) {
  if (!options.recompute_auto) {
    all.push_back({.flag = "--recompute",
                   .value = "auto",
                   .words = "--recompute auto",
                   .kinds = {MemoryKind::activations},
                   .make = [](TrainerOptions& o) {
                     o.recompute = 0;
                     o.recompute_auto = true;
                   }});
  }
  if (std::min(options.microbatch_size, options.batch_size / options.grid.g_data) > 1) {
    all.push_back({.flag = "--microbatch-size",
                   .value = "1",
                   .words = "a smaller --microbatch-size",
                   .kinds = {MemoryKind::activations, MemoryKind::messages, MemoryKind::workspace},
                   .make = [](TrainerOptions& o) { o.microbatch_size = 1; }});
  }
}

/// What costs speed for little, or changes what is computed: said of a kind, not tried.
void add_rest(std::vector<Remedy>& all, const TrainerOptions& options) {
  const auto add = [&all](bool possible, const char* words, std::vector<MemoryKind> kinds) {
    if (possible) all.push_back({.words = words, .kinds = std::move(kinds)});
  };
  const bool full = options.precision.compute == runtime::DType::f32;
  add(options.pipeline_limit > 1, "a smaller --pipeline-limit", {MemoryKind::activations});
  add(options.prefetch > 0, "--prefetch 0", {MemoryKind::messages, MemoryKind::workspace});
  add(options.threads > 1, "fewer --threads", {MemoryKind::workspace});
  add(full, "--precision bf16", {MemoryKind::parameters, MemoryKind::activations});
  add(!full && options.precision.gradient == runtime::DType::f32, "--gradient-dtype half", {MemoryKind::gradients});
}

void add_host(std::vector<Remedy>& all, const TrainerOptions& options) {
  const auto on_device = [&options](TierKind actors::TierOptions::*tier) {
    return options.tiers.*tier == TierKind::device;
  };
  if (on_device(&actors::TierOptions::optimizer)) {
    all.push_back({.flag = "--optimizer-tier",
                   .value = "host",
                   .words = "--optimizer-tier host",
                   .kinds = {MemoryKind::optimizer},
                   .way = Way::to_host,
                   .make = [](TrainerOptions& o) { o.tiers.optimizer = TierKind::host; }});
  }
  if (on_device(&actors::TierOptions::parameters) || on_device(&actors::TierOptions::gradients)) {
    all.push_back({.flag = "--offload",
                   .value = "infinity-cpu",
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

std::vector<Remedy> remedies_of(const TrainerOptions& options) {
  std::vector<Remedy> all;
  add_files(all, options);
  add_passes(all, options);
  add_shardings(all, options);
  add_rest(all, options);
  add_host(all, options);
  return all;
}

}  // namespace ranvier::apps
