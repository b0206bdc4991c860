#include "apps/plan/bound.hpp"

#include "actors/states/algorithm_choice.hpp"
#include "apps/memory/shard_table.hpp"
#include "apps/options/flag_groups.hpp"
#include "collectives/nccl/nccl_steps.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/simulation/phantom_device.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

namespace ranvier::apps {

using actors::TrainerOptions;
using models::SavedActivations;
using models::StageLayout;
using runtime::MemoryKind;

namespace {

/// Division of a row's samples into microbatches.
struct Cut {
  int microbatches = 1;
  int whole = 1;  ///< samples per microbatch, except the last
  int last = 1;   ///< samples of the last microbatch
};

Cut cut_of(int row_samples, int microbatch) {
  const int whole = std::min(microbatch, row_samples);
  const int microbatches = runtime::ceil_divide(row_samples, whole);
  return {microbatches, whole, row_samples - (microbatches - 1) * whole};
}

Cut cut_of(const TrainerOptions& trainer) {
  return cut_of(trainer.batch_size / trainer.grid.g_data, trainer.microbatch_size);
}

/// Algorithms that bound NCCL's traffic: its own are counted as rings, which is never too much. None if NCCL carries
/// out plans, which do not share links in a simulation.
std::optional<actors::PlanChoices> nccl_choices(const models::Architecture& architecture,
                                                const TrainerOptions& trainer) {
  actors::AlgorithmNames names = trainer.algorithms;
  for (const auto& [collective, name] : algorithm_fields) {
    switch (collectives::nccl_mode(names.*name)) {
      case collectives::NcclMode::own:
        names.*name = "ring";
        break;
      case collectives::NcclMode::hierarchical:
        break;
      case collectives::NcclMode::plan:
        return {};
    }
  }
  const actors::ColumnShape shape = actors::column_shape(trainer);
  return actors::choose_algorithms(
      shape.node_of_row, shape.group_size,
      {.names = names,
       .links = trainer.links,
       .largest = actors::largest_units(architecture, trainer.grid.g_data, trainer.tiers, trainer.wire),
       .precision = trainer.precision,
       .sharding = trainer.shardings(),
       .wire = trainer.wire});
}

/// Traffic of a stage's column per step.
std::vector<actors::UnitTraffic> moves_of(const models::Architecture& architecture, const TrainerOptions& trainer,
                                          const actors::RankPlan& plan, int stage) {
  const actors::ColumnShape shape = actors::column_shape(trainer);
  const auto units =
      actors::sharded_units(architecture, plan.layers, trainer.grid.g_data, trainer.tiers, trainer.wire);
  std::vector<std::size_t> elements;
  for (const actors::ShardedUnit& unit : units) {
    const bool in_place = actors::are_in_place(unit.trained, trainer.shardings(), trainer.grid.g_data,
                                               shape.group_size, trainer.precision, trainer.tiers);
    elements.push_back(in_place ? 0 : unit.elements);
  }
  const auto places = actors::ParameterStore::classes_of(*plan.stage, elements, plan.parameters.options);
  return actors::replayed_moves(plan, stage, units, places);
}

/// Smallest factor; absent factors are 1.
double min_of(const std::vector<double>& factors) {
  return factors.empty() ? 1 : std::min(1.0, *std::ranges::min_element(factors));
}

}  // namespace

Bounds::Bounds(const Planner& planner, const actors::Disturbances& disturbances)
    : planner_(&planner),
      costs_(planner.profile()),
      min_work_(runtime::min_jitter(disturbances.jitter) * min_of(disturbances.slow_ranks)),
      min_byte_(min_of(disturbances.slow_nodes)),
      times_(planner.job().architecture, planner.layer_classes(), costs_, planner.profile().gpu,
             planner.profile().gpu ? 1 : planner.profile().threads) {}

Bound Bounds::of(const Candidate& candidate) {
  const models::Architecture& architecture = planner_->job().architecture;
  // The schedule is given for all candidates or chosen by this one. If it defers weight gradients, any number may be
  // deferred.
  const bool waits = candidate.policy.empty() || actors::defers_weights(actors::policy_from(candidate.policy));
  const auto [place, is_new] =
      computes_.try_emplace({candidate.g_inter, candidate.microbatch_size, candidate.recompute, waits});
  if (is_new) {
    // For auto and for given values, the lower bound: no recomputation.
    const int recompute = parse_whole(candidate.recompute, 1).value_or(0);
    const int chunks = planner_->chunks_per_rank();
    const auto slices = actors::slice_layers(architecture, {.stages = candidate.g_inter, .chunks = chunks},
                                             planner_->layers_per_stage());
    const Cut cut = cut_of(planner_->batch_size() / candidate.g_data, candidate.microbatch_size);
    Passes passes;
    for (const models::LayerRange& layers : slices) {
      const StageLayout layout(
          architecture, {.layers = layers,
                         .capacity = {cut.whole, architecture.positions, 1,
                                      planner_->may_save_all() ? SavedActivations::all : SavedActivations::few},
                         .precision = architecture.precision,
                         .slots = cut.microbatches,
                         .recompute = recompute,
                         .deferred_slots = waits ? cut.microbatches : 0,
                         .sample = planner_->job().sample});
      passes.whole.push_back(pass_seconds(layout, layers.begin, times_, cut.whole));
      passes.last.push_back(pass_seconds(layout, layers.begin, times_, cut.last));
    }
    place->second = pipeline_seconds(passes.whole, passes.last, cut.microbatches, chunks);
  }
  return bound_of(place->second, 0, place->second);
}

Bound Bounds::bound_of(double compute, double links, double estimate) const {
  const double seconds = std::max(min_work_ * compute, min_byte_ * links);
  return {seconds, std::max(estimate, seconds)};
}

Bound Bounds::of(const PlannedCandidate& trial) {
  const Cut cut = cut_of(trial.trainer);
  Passes passes;
  const actors::SliceMap map = actors::slice_map(trial.trainer);
  for (int slice = 0; slice < map.slices(); ++slice) {
    const actors::RankPlan& plan = trial.plans.stage(static_cast<std::size_t>(map.stage_of(slice)));
    const auto chunk = static_cast<std::size_t>(map.chunk_of(slice));
    passes.whole.push_back(pass_seconds(plan.stage->slice(chunk), plan.layers[chunk].begin, times_, cut.whole));
    passes.last.push_back(pass_seconds(plan.stage->slice(chunk), plan.layers[chunk].begin, times_, cut.last));
  }
  const double compute = pipeline_seconds(passes.whole, passes.last, cut.microbatches, map.chunks);
  double estimate = compute;
  const double links = links_seconds(trial, estimate);
  return bound_of(compute, links, estimate + tiers_seconds(trial));
}

/// Counter of the traffic within a stage's column, cached by everything that it depends on.
actors::VolumeCounter& Bounds::counter_of(const PlannedCandidate& trial, const actors::RankPlan& plan, int stage,
                                          const actors::PlanChoices& choices) {
  const TrainerOptions& trainer = trial.trainer;
  const actors::ColumnShape shape = actors::column_shape(trainer);
  std::vector<int> nodes = nodes_of_column(trainer, stage);
  const auto first = static_cast<std::size_t>(stage) * nodes.size();
  for (int& node : nodes) node -= trainer.node_of.empty() ? 0 : trainer.node_of[first];
  std::string key =
      fmt::format("{} {} {} {} {} {} {}", shape.group_size, to_string(trainer.tiers.master),
                  static_cast<int>(trainer.tiers.parameters),
                  trainer.tiers.trained_parameters ? static_cast<int>(*trainer.tiers.trained_parameters) : -1,
                  plan.parameters.options.pulls, fmt::join(nodes, ","), fmt::join(shape.node_of_row, ","));
  for (const collectives::PlanChoice& choice : choices)
    key += fmt::format(" {} {} {}", choice.all_gather, choice.reduce_scatter, choice.all_reduce);
  return counters_.try_emplace(key, volume_options(trainer, plan, std::move(nodes), choices)).first->second;
}

/// Lower bound of the link time: each node sends on average an equal share of all bytes through one port per direction.
double Bounds::links_seconds(const PlannedCandidate& trial, double& estimate) {
  const models::Architecture& architecture = planner_->job().architecture;
  const TrainerOptions& trainer = trial.trainer;
  const runtime::Links& links = planner_->profile().links;
  const Cut cut = cut_of(trainer);
  const std::set<int> nodes(trainer.node_of.begin(), trainer.node_of.end());
  // Bytes of messages and of NCCL are bounded separately, although they share links.
  double messages = 0, rings = 0, passing = 0, update = 0;
  const bool nccl = trainer.gpu && trainer.gpu->nccl;
  const auto of_nccl = nccl && trainer.grid.g_data > 1 ? nccl_choices(architecture, trainer) : std::nullopt;
  double& collective = nccl ? rings : messages;
  for (int stage = 0; stage < trainer.grid.g_inter; ++stage) {
    const actors::RankPlan& plan = trial.plans.stage(static_cast<std::size_t>(stage));
    if (trainer.grid.g_data > 1) {
      const actors::Volume volume = counter_of(trial, plan, stage, of_nccl ? *of_nccl : plan.column->choices)
                                        .count(moves_of(architecture, trainer, plan, stage), trainer.shardings());
      // Pulls depend on the order in which messages arrive, so they are not counted.
      if (!plan.parameters.options.pulls)
        collective += static_cast<double>(volume.forward.inter_node.bytes + volume.backward.inter_node.bytes);
      collective += static_cast<double>(volume.update.inter_node.bytes - volume.matrices.inter_node.bytes);
      passing = std::max(passing, volume.forward.seconds + volume.backward.seconds);
      messages += static_cast<double>(volume.matrices.inter_node.bytes);
      update = std::max(update, volume.update.seconds);
    }
  }
  const actors::SliceMap map = actors::slice_map(trainer);
  for (int k = 0; k + 1 < map.slices(); ++k) {
    int apart = 0;
    for (int row = 0; row < trainer.grid.g_data; ++row) {
      const auto node = [&](int stage) {
        return trainer.node_of.at(static_cast<std::size_t>(stage * trainer.grid.g_data + row));
      };
      apart += node(map.stage_of(k)) != node(map.stage_of(k + 1)) ? 1 : 0;
    }
    const actors::RankPlan& plan = trial.plans.stage(static_cast<std::size_t>(map.stage_of(k)));
    const models::Stage& slice = plan.stage->slice(static_cast<std::size_t>(map.chunk_of(k)));
    const auto bytes = static_cast<double>(slice.output_bytes(cut.whole)) * (cut.microbatches - 1) +
                       static_cast<double>(slice.output_bytes(cut.last));
    messages += apart * bytes * (slice.awaits_gradients() ? 2 : 1);
  }
  if (nccl && !of_nccl) rings = 0;
  const double inter = std::max(messages, rings);
  const double least = links.inter_node.measured() && links.inter_node.node_bytes_per_second > 0
                           ? inter / static_cast<double>(nodes.size()) / links.inter_node.node_bytes_per_second
                           : 0;
  // Passes overlap most of the traffic during them; nothing overlaps the traffic after the last pass.
  constexpr double seen = 0.2;
  estimate = std::max(estimate, passing) + seen * std::min(estimate, passing) + update;
  return least;
}

/// Estimate of the time to move states to the device and back.
double Bounds::tiers_seconds(const PlannedCandidate& trial) const {
  const auto& profile = planner_->profile();
  const TrainerOptions& trainer = trial.trainer;
  const auto off = [&](MemoryKind kind) {
    return static_cast<double>(trial.kinds.elsewhere[static_cast<std::size_t>(kind)]);
  };
  const auto seconds = [&](offload::TierKind tier, double bytes) {
    if (tier == offload::TierKind::device || bytes == 0) return 0.0;
    const runtime::WorkCost copy{.kind = runtime::WorkKind::host_copy, .bytes = bytes};
    const double link = std::chrono::duration<double>(costs_.duration(copy)).count();
    if (tier == offload::TierKind::host) return link;
    const double rate = std::min(profile.read_bytes_per_second, profile.write_bytes_per_second);
    return std::max(link, rate > 0 ? bytes * planner_->node_size() / rate : 0);
  };
  double sum = seconds(trainer.tiers.optimizer, off(MemoryKind::optimizer));
  const offload::TierKind parameters = std::max(trainer.tiers.parameters, trainer.tiers.secondary_of(true));
  sum += 2 * cut_of(trainer).microbatches * seconds(parameters, off(MemoryKind::parameters));
  sum += 2 * cut_of(trainer).microbatches * seconds(trainer.tiers.gradients, off(MemoryKind::gradients));
  return sum;
}

}  // namespace ranvier::apps
