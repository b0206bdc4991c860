#include "apps/shard_table.hpp"

#include "actors/rank_plan.hpp"
#include "actors/volume.hpp"
#include "runtime/arena.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace ranvier::apps {

using actors::Volume;
using collectives::Sharding;
using collectives::TeamKind;

namespace {

std::string amount(std::uint64_t bytes) { return bytes == 0 ? "–" : runtime::format_bytes(bytes); }

/// "group: all-gather recursive, reduce-scatter ring; replicas: …", of what the sharding uses.
std::string algorithm_text(const Sharding& sharding, const ShardSetting& setting) {
  const collectives::ShardFlow flow =
      collectives::ShardLayout(setting.node_of_row, setting.group_size, 0).flow(sharding);
  std::map<TeamKind, std::set<std::string>> by_team;
  for (const auto* hops : {&flow.gather_forward, &flow.gather_backward, &flow.reduce_microbatch, &flow.reduce_batch,
                           &flow.gather_gradient, &flow.refresh}) {
    for (const collectives::Hop& hop : *hops) {
      const auto& choice = setting.algorithms[static_cast<std::size_t>(hop.team)];
      by_team[hop.team].insert(
          fmt::format("{} {}", to_string(hop.collective), choice.algorithm_of(hop.collective).name));
    }
  }
  std::vector<std::string> teams;
  for (const auto& [team, names] : by_team) {
    teams.push_back(fmt::format("{}: {}", to_string(team), fmt::join(names, ", ")));
  }
  return teams.empty() ? "nothing to send" : fmt::format("{}", fmt::join(teams, "; "));
}

std::string link_text(const collectives::Link& link) {
  return fmt::format("{:.3g} µs, {:.3g} GB/s a rank, {:.3g} GB/s a node", link.latency_seconds * 1e6,
                     link.bytes_per_second / 1e9, link.node_bytes_per_second / 1e9);
}

/// What one sharding comes to over all stages.
struct Cost {
  actors::StateBytes states;  ///< of the stage with the most
  Volume volume;              ///< of all columns; seconds of the slowest one
};

class Stages {
 public:
  Stages(const TrainOptions& options, const models::Architecture& architecture, const ShardSetting& setting)
      : options_(&options), setting_(&setting) {
    const auto& [stages, rows] = options.grid.shape;
    const int row_samples = options.batch.batch_size / rows;
    micro_steps_ = (row_samples + options.batch.microbatch_size - 1) / options.batch.microbatch_size;
    const auto layers = actors::stage_layers(architecture, stages);
    for (int stage = 0; stage < stages; ++stage) {
      const auto first = setting.node_of.begin() + static_cast<std::ptrdiff_t>(stage) * rows;
      counters_.push_back(std::make_unique<actors::VolumeCounter>(
          actors::VolumeOptions{.node_of = {first, first + rows},
                                .node_of_row = setting.node_of_row,
                                .group_size = setting.group_size,
                                .algorithms = setting.algorithms,
                                .links = setting.links,
                                .precision = options.precision.types,
                                .pulls = stages > 1 && options.batch.policy == PipelinePolicy::message_driven}));
      units_.push_back(actors::sharded_units(architecture, layers[static_cast<std::size_t>(stage)], rows));
    }
  }

  [[nodiscard]] int micro_steps() const noexcept { return micro_steps_; }

  [[nodiscard]] Cost cost(const Sharding& sharding) {
    Cost cost;
    for (std::size_t stage = 0; stage < units_.size(); ++stage) {
      const auto states = actors::state_bytes(units_[stage], sharding, options_->grid.shape.g_data,
                                              setting_->group_size, options_->precision.types);
      if (states.total() > cost.states.total()) cost.states = states;
      const auto moves = actors::moves_of(units_[stage], static_cast<std::uint64_t>(micro_steps_));
      const Volume column = counters_[stage]->count(moves, sharding);
      for (auto phase : {&Volume::forward, &Volume::backward, &Volume::update}) {
        const double slowest = std::max((cost.volume.*phase).seconds, (column.*phase).seconds);
        cost.volume.*phase += column.*phase;
        (cost.volume.*phase).seconds = slowest;
      }
    }
    return cost;
  }

 private:
  const TrainOptions* options_;
  const ShardSetting* setting_;
  int micro_steps_ = 1;
  std::vector<std::unique_ptr<actors::VolumeCounter>> counters_;
  std::vector<std::vector<actors::ShardedUnit>> units_;
};

std::string line(const std::string& name, bool chosen, const Cost& cost) {
  const auto& [states, volume] = cost;
  std::string text =
      fmt::format("{} {:<8}{:>11}{:>11}{:>11}{:>11} ", chosen ? '*' : ' ', name, amount(states.parameters),
                  amount(states.gradients), amount(states.optimizer), amount(states.total()));
  for (const auto link : {&actors::PhaseVolume::inter_node, &actors::PhaseVolume::intra_node}) {
    for (const auto phase : {&Volume::forward, &Volume::backward, &Volume::update}) {
      text += fmt::format("{:>10}", amount((volume.*phase.*link).bytes));
    }
    text += ' ';
  }
  return text + fmt::format("{:>9}\n", fmt::format("{:.3g} s", volume.total().seconds));
}

}  // namespace

std::string shard_table(const TrainOptions& options, const models::Architecture& architecture,
                        const ShardSetting& setting) {
  const Sharding& chosen = options.shard.sharding;
  Stages stages(options, architecture, setting);
  const int rows = options.grid.shape.g_data;
  const std::set<int> nodes(setting.node_of.begin(), setting.node_of.end());
  std::string text = fmt::format(
      "sharding {}: {} rows in groups of {}; {} ranks on {} node{}; {} microbatch{} of a row in a batch\n",
      to_string(chosen), rows, setting.group_size, options.grid.ranks, nodes.size(), nodes.size() == 1 ? "" : "s",
      stages.micro_steps(), stages.micro_steps() == 1 ? "" : "es");
  text += fmt::format("  {}\n", algorithm_text(chosen, setting));
  text += fmt::format("  links inside nodes: {}; between them: {} ({})\n\n", link_text(setting.links.intra_node),
                      link_text(setting.links.inter_node),
                      options.shard.measured ? options.shard.links : "assumed; --links gives measured ones");
  text += fmt::format("{:<10}{:^45}{:^31}{:^31}{:>9}\n", "", "held by a rank", "sent between nodes in a batch",
                      "sent inside nodes in a batch", "seconds");
  text += fmt::format("{:<10}{:>11}{:>11}{:>11}{:>11} {:>10}{:>10}{:>10} {:>10}{:>10}{:>10} {:>9}\n", "  shard",
                      "parameters", "gradients", "optimizer", "sum", "forward", "backward", "update", "forward",
                      "backward", "update", "on links");
  bool has_name = false;
  for (const auto& [name, sharding] : collectives::named_shardings()) {
    has_name = has_name || sharding == chosen;
    text += line(std::string(name), sharding == chosen, stages.cost(sharding));
  }
  if (!has_name) text += line(to_string(chosen), true, stages.cost(chosen));
  return text;
}

}  // namespace ranvier::apps
