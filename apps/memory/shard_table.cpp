#include "apps/memory/shard_table.hpp"

#include "actors/watch/reporter.hpp"
#include "runtime/device/arena.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace ranvier::apps {

using actors::UnitShardings;
using actors::Volume;
using collectives::Sharding;
using collectives::TeamKind;

namespace {

std::string amount(std::uint64_t bytes) { return bytes == 0 ? "–" : runtime::format_bytes(bytes); }

/// "group: all-gather recursive, reduce-scatter direct in int8; replicas: …": algorithms that the sharding uses, and
/// types of messages that differ from the data's.
std::string algorithm_text(const actors::RankPlan& plan) {
  using collectives::Collective;
  const collectives::ShardFlow &flow = plan.flow, &frozen = plan.frozen_flow;
  std::map<TeamKind, std::set<std::string>> by_team;
  const auto add = [&](const std::vector<collectives::Hop>& hops, const collectives::WireTypes::Links& links) {
    for (const auto& [collective, team, whole, piece] : hops) {
      const auto& choice = plan.column->choices[static_cast<std::size_t>(team)];
      const collectives::WireType type = plan.column->layout.wire_type(team, links);
      const bool in_blocks = type != collectives::WireType::same;
      std::string name(choice.algorithm_of(collective).name);
      // Sums in blocks are sent directly to their owners, and gathered from them.
      if (in_blocks && collective != Collective::all_gather) name = "direct";
      if (in_blocks && collective == Collective::all_reduce) name += fmt::format(" and {}", choice.all_gather);
      by_team[team].insert(fmt::format("{} {}{}", to_string(collective), name,
                                       in_blocks ? fmt::format(" in {}", to_string(type)) : ""));
    }
  };
  const auto& [gather, reduce] = plan.column->wire;
  for (const auto* hops : {&flow.gather_forward, &flow.gather_backward, &flow.refresh, &frozen.gather_forward,
                           &frozen.gather_backward})
    add(*hops, gather);
  for (const auto* hops : {&flow.reduce_microbatch, &flow.reduce_batch, &flow.gather_gradient}) add(*hops, reduce);
  std::vector<std::string> teams;
  for (const auto& [team, names] : by_team) {
    teams.push_back(fmt::format("{}: {}", to_string(team), fmt::join(names, ", ")));
  }
  return teams.empty() ? "nothing to send" : fmt::format("{}", fmt::join(teams, "; "));
}

std::string link_text(const collectives::Link& link) {
  if (!link.measured()) return "not measured";
  return fmt::format("{:.3g} µs, {:.3g} GB/s per rank, {:.3g} GB/s per node", link.latency_seconds * 1e6,
                     link.bytes_per_second / 1e9, link.node_bytes_per_second / 1e9);
}

/// Cost of one sharding over all stages.
struct Cost {
  actors::StateBytes states;  ///< per rank, for the stage with most
  Volume volume;              ///< bytes over all columns; seconds of the slowest one
  std::uint64_t paper_inter_node_bytes = 0;
};

class Column {
 public:
  Column(const models::Architecture& architecture, const actors::TrainerOptions& trainer,
         const actors::RankPlan& plan, const actors::ColumnShape& shape, const actors::PlanChoices& algorithms,
         int micro_steps)
      : trainer_(&trainer),
        group_size_(shape.group_size),
        units_(actors::sharded_units(architecture, plan.layers, trainer.grid.g_data, trainer.tiers, trainer.wire)),
        paper_(actors::moves_of(units_, static_cast<std::uint64_t>(micro_steps))),
        plan_(&plan),
        counter_(volume_options(trainer, plan, nodes_of_column(trainer, plan.position.stage), algorithms)) {}

  void add_to(Cost& cost, const UnitShardings& sharding) {
    const auto states = actors::state_bytes(units_, sharding, trainer_->grid.g_data, group_size_,
                                            trainer_->precision, trainer_->tiers);
    if (states.total() > cost.states.total()) cost.states = states;
    const Volume column = counter_.count(moves_of(sharding), sharding);
    for (auto phase : {&Volume::forward, &Volume::backward, &Volume::update}) {
      const double slowest = std::max((cost.volume.*phase).seconds, (column.*phase).seconds);
      (cost.volume.*phase).add(column.*phase);
      (cost.volume.*phase).seconds = slowest;
    }
    cost.paper_inter_node_bytes += counter_.count(paper_, sharding).total().inter_node.bytes;
  }

 private:
  /// Transfers with the buffers that gathered units would have under this sharding.
  const std::vector<actors::UnitTraffic>& moves_of(const UnitShardings& sharding) {
    if (trainer_->grid.g_data == 1) return paper_;
    const auto in_place = [&](bool trained) {
      return actors::are_in_place(trained, sharding, trainer_->grid.g_data, group_size_, trainer_->precision,
                                  trainer_->tiers);
    };
    const bool frozen = in_place(false), trained = in_place(true);
    const auto [known, is_new] = moves_.try_emplace({frozen, trained});
    if (!is_new) return known->second;
    std::vector<std::size_t> elements;
    for (const actors::ShardedUnit& unit : units_)
      elements.push_back((unit.trained ? trained : frozen) ? 0 : unit.elements);
    const auto places = actors::ParameterStore::classes_of(*plan_->stage, elements, plan_->parameters.options);
    known->second = actors::replayed_moves(*plan_, plan_->position.stage, units_, places);
    return known->second;
  }

  const actors::TrainerOptions* trainer_;
  int group_size_;
  std::vector<actors::ShardedUnit> units_;
  std::vector<actors::UnitTraffic> paper_;
  const actors::RankPlan* plan_;
  std::map<std::pair<bool, bool>, std::vector<actors::UnitTraffic>>
      moves_;  // key: frozen in place, trained in place
  actors::VolumeCounter counter_;
};

/// Lines of a table. `part`: only a part of the model is trained; frozen and trained parameters have separate columns.
class Lines {
 public:
  explicit Lines(bool part) : part_(part) {}

  [[nodiscard]] std::string head(const std::string& flag) const {
    const auto cell = [](const char* text) { return fmt::format("{:>11}", text); };
    std::string text =
        fmt::format("{:<10}{}{}{:^31}{:^31}{:>10}{:>11}\n", "", part_ ? "     " : "",
                    part_ ? fmt::format("{:^50} ", "stored per rank") : fmt::format("{:^45}", "stored per rank"),
                    "sent between nodes per batch", "sent inside nodes per batch", "Table 2", "seconds");
    text += fmt::format("  {:<{}}{}{}{}{} {:>10}{:>10}{:>10} {:>10}{:>10}{:>10} {:>10}{:>11}\n", flag,
                        part_ ? 13 : 8, part_ ? cell("frozen") + cell("trained") : cell("parameters"),
                        cell("gradients"), cell("optimizer"), cell("total"), "forward", "backward", "update",
                        "forward", "backward", "update", "between", "on links");
    return text;
  }

  [[nodiscard]] std::string line(const std::string& name, bool chosen, const Cost& cost) const {
    const auto& [states, volume, paper] = cost;
    std::string text = fmt::format("{} {:<{}}", chosen ? '*' : ' ', name, part_ ? 13 : 8);
    const std::size_t trained = states.parameters - states.frozen;
    if (part_) text += fmt::format("{:>11}{:>11}", amount(states.frozen), amount(trained));
    if (!part_) text += fmt::format("{:>11}", amount(states.parameters));
    text += fmt::format("{:>11}{:>11}{:>11} ", amount(states.gradients), amount(states.optimizer),
                        amount(states.total()));
    for (const auto link : {&actors::PhaseVolume::inter_node, &actors::PhaseVolume::intra_node}) {
      for (const auto phase : {&Volume::forward, &Volume::backward, &Volume::update}) {
        text += fmt::format("{:>10}", amount((volume.*phase.*link).bytes));
      }
      text += ' ';
    }
    return text + fmt::format("{:>10}{:>11}\n", amount(paper), fmt::format("{:.3g} s", volume.total().seconds));
  }

 private:
  bool part_;
};

}  // namespace

std::vector<int> nodes_of_column(const actors::TrainerOptions& trainer, int stage) {
  std::vector<int> nodes;
  for (int row = 0; row < trainer.grid.g_data; ++row) {
    const auto rank = static_cast<std::size_t>(stage * trainer.grid.g_data + row);
    nodes.push_back(trainer.node_of.empty() ? 0 : trainer.node_of.at(rank));
  }
  return nodes;
}

actors::VolumeOptions volume_options(const actors::TrainerOptions& trainer, const actors::RankPlan& plan,
                                     std::vector<int> nodes, const actors::PlanChoices& algorithms) {
  const actors::ColumnShape shape = actors::column_shape(trainer);
  return {.node_of = std::move(nodes),
          .node_of_row = shape.node_of_row,
          .group_size = shape.group_size,
          .algorithms = algorithms,
          .links = trainer.links,
          .precision = trainer.precision,
          .tiers = trainer.tiers,
          .wire = trainer.wire,
          .pulls = plan.parameters.options.pulls};
}

std::string shard_table(const models::Architecture& architecture, const actors::TrainerOptions& trainer,
                        std::span<const actors::RankPlan> stages, const std::string& measured_links) {
  const actors::ColumnShape shape = actors::column_shape(trainer);
  const int rows = trainer.grid.g_data;
  const int micro_steps = actors::microbatches_of(trainer);
  const auto algorithms =
      actors::choose_algorithms(shape.node_of_row, shape.group_size,
                                {.names = trainer.algorithms,
                                 .kept = trainer.kept_algorithms,
                                 .links = trainer.links,
                                 .largest = actors::largest_units(architecture, rows, trainer.tiers, trainer.wire),
                                 .precision = trainer.precision,
                                 .wire = trainer.wire});
  std::vector<std::unique_ptr<Column>> columns;
  for (const actors::RankPlan& stage : stages) {
    columns.push_back(std::make_unique<Column>(architecture, trainer, stage, shape, algorithms, micro_steps));
  }
  const auto cost_of = [&](const UnitShardings& sharding) {
    Cost cost;
    for (const auto& column : columns) column->add_to(cost, sharding);
    return cost;
  };

  const std::set<int> nodes(trainer.node_of.begin(), trainer.node_of.end());
  std::string text = fmt::format(
      "sharding {}{}: {} rows in groups of {}; {} ranks on {} node{}; {} microbatch{} per row and batch\n",
      to_string(trainer.sharding),
      trainer.trained_sharding ? ", trained parameters " + to_string(*trainer.trained_sharding) : "", rows,
      shape.group_size, trainer.grid.ranks(), nodes.size(), nodes.size() == 1 ? "" : "s", micro_steps,
      micro_steps == 1 ? "" : "es");
  const std::size_t all = architecture.parameters(), trained = architecture.trained_parameters();
  const bool part = trained < all;
  if (part)
    text += fmt::format(
        "  {} parameters (Ψ); {} of them are trained (Ψ′) and have gradients and optimizer states\n",
        actors::format_count(static_cast<double>(all)), actors::format_count(static_cast<double>(trained)));
  text += fmt::format("  {}\n", algorithm_text(stages[0]));
  if (trainer.tiers.secondary == actors::TierKind::host)
    text += "  zero++: the second copy of parameters is in host memory (--secondary-tier)\n";
  if (part)
    text +=
        "  zero++: groups keep frozen parameters: only the first batch sends them between groups; the table "
        "excludes it\n";
  text += fmt::format("  links inside nodes: {}; between them: {} ({})\n\n", link_text(trainer.links.intra_node),
                      link_text(trainer.links.inter_node),
                      measured_links.empty() ? "assumed; use --links FILE for measured ones" : measured_links);
  const Lines lines(part);
  // All named shardings, then the chosen one if it has no name.
  const auto table = [&](const std::string& flag, const Sharding& chosen, auto&& with) {
    text += lines.head(flag);
    bool has_name = false;
    for (const auto& [name, sharding] : collectives::named_shardings()) {
      has_name = has_name || sharding == chosen;
      text += lines.line(std::string(name), sharding == chosen, cost_of(with(sharding)));
    }
    if (!has_name) text += lines.line(to_string(chosen), true, cost_of(with(chosen)));
  };
  table("shard", trainer.sharding, [&](const Sharding& sharding) {
    return UnitShardings(sharding, trainer.trained_sharding.value_or(sharding));
  });
  if (!part) return text;
  text += fmt::format("\nthe same with --shard {} and each --shard-trained:\n\n", to_string(trainer.sharding));
  table("shard-trained", trainer.shardings().trained,
        [&](const Sharding& sharding) { return UnitShardings(trainer.sharding, sharding); });
  return text;
}

}  // namespace ranvier::apps
