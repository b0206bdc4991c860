#include "apps/memory/saved_column.hpp"

#include "apps/options/flag_groups.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace ranvier::apps {

namespace json = boost::json;
using actors::AlgorithmNames;

actors::KeptAlgorithms names_of(const actors::PlanChoices& choices) {
  actors::KeptAlgorithms names;
  for (std::size_t team = 0; team < names.size(); ++team)
    names[team] = {choices[team].all_gather, choices[team].reduce_scatter, choices[team].all_reduce};
  return names;
}

SavedColumn saved_column(const actors::TrainerOptions& trainer, const actors::PlanChoices& choices, bool nccl) {
  const actors::ColumnShape shape = actors::column_shape(trainer);
  std::string sharding = to_string(trainer.sharding);
  if (trainer.trained_sharding) sharding += " trained " + to_string(*trainer.trained_sharding);
  SavedColumn column{.group_size = shape.group_size, .sharding = std::move(sharding), .nccl = nccl};
  std::map<int, int> number_of;
  for (const int node : shape.node_of_row)
    column.nodes.push_back(number_of.try_emplace(node, static_cast<int>(number_of.size())).first->second);
  column.algorithms = names_of(choices);
  return column;
}

json::object to_json(const SavedColumn& column) {
  json::array algorithms;
  for (const AlgorithmNames& team : column.algorithms) {
    json::array of_team;
    for (const auto& [collective, name] : algorithm_fields) of_team.push_back(json::value(team.*name));
    algorithms.push_back(std::move(of_team));
  }
  return {{"nodes", json::value_from(column.nodes)},
          {"group_size", column.group_size},
          {"sharding", column.sharding},
          {"algorithms", std::move(algorithms)},
          {"nccl", column.nccl}};
}

std::optional<SavedColumn> column_of_json(const json::value* value) try {
  if (value == nullptr) return std::nullopt;
  const json::object& object = value->as_object();
  SavedColumn column{.nodes = json::value_to<std::vector<int>>(object.at("nodes")),
                     .group_size = json::value_to<int>(object.at("group_size")),
                     .sharding = json::value_to<std::string>(object.at("sharding")),
                     .nccl = object.at("nccl").as_bool()};
  for (std::size_t team = 0; team < column.algorithms.size(); ++team) {
    const json::array& of_team = object.at("algorithms").as_array().at(team).as_array();
    for (std::size_t i = 0; i < algorithm_fields.size(); ++i) {
      const auto& [collective, name] = algorithm_fields[i];
      column.algorithms[team].*name = json::value_to<std::string>(of_team.at(i));
      if (!has_algorithm(collective, column.algorithms[team].*name)) return std::nullopt;
    }
  }
  return column;
} catch (const std::exception&) {
  return std::nullopt;
}

ColumnChange column_change(const SavedColumn& before, const SavedColumn& now, const AlgorithmNames& flags) {
  const bool flags_differ = before.nodes.size() != now.nodes.size() || before.group_size != now.group_size ||
                            before.sharding != now.sharding;
  if (flags_differ || now.nodes.size() < 2) return {};
  if (before.nodes != now.nodes)
    return {.line = "the ranks of a column are on other nodes than before: results are the same within rounding"};
  const auto differs = [&](std::size_t team) {
    return std::ranges::any_of(algorithm_fields, [&](const auto& each) {
      const auto name = each.second;
      return flags.*name == "auto" && before.algorithms[team].*name != now.algorithms[team].*name;
    });
  };
  bool any = false;
  for (std::size_t team = 0; team < now.algorithms.size(); ++team) any |= differs(team);
  if (!any) return {};
  return {.keeps = true,
          .line = "collectives keep the algorithms that auto chose for the checkpoint: results are bit-identical"};
}

}  // namespace ranvier::apps
