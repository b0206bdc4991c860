#include "apps/options/flag_groups.hpp"

#include "collectives/plans/link_file.hpp"
#include "collectives/plans/topology.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

using collectives::Collective;
using collectives::WireType;

namespace {

constexpr int imagined_node_size = 8;
constexpr std::string_view as_shard = "same";  // --shard-trained
constexpr std::string_view inter_links = "inter=", intra_links = "intra=";

std::vector<std::string> shard_words() {
  std::vector<std::string> names;
  for (const auto& named : collectives::named_shardings()) names.emplace_back(named.name);
  return names;
}

OptionBinding sharding(collectives::Sharding& field) {
  return {.read = [&field](const std::string& given) -> std::optional<std::string> {
            field = collectives::parse_sharding(given);
            return {};
          },
          .write = [&field] { return collectives::to_string(field); },
          .words = shard_words()};
}

OptionBinding trained_sharding(std::optional<collectives::Sharding>& field) {
  std::vector<std::string> words = shard_words();
  words.emplace_back(as_shard);
  return {.read = [&field](const std::string& given) -> std::optional<std::string> {
            field.reset();
            if (given != as_shard) field = collectives::parse_sharding(given, "--shard-trained");
            return {};
          },
          .write = [&field] { return field ? collectives::to_string(*field) : std::string(as_shard); },
          .words = std::move(words)};
}

std::string shard_names() { return fmt::format("{}", fmt::join(shard_words(), ", ")); }

/// "auto" or one of the collective's algorithms.
OptionBinding algorithm(std::string& field, Collective collective) {
  std::vector<std::pair<std::string, std::string>> words{{"auto", "auto"}};
  for (const auto& each : collectives::algorithms(collective)) words.emplace_back(each.name, each.name);
  return choice<std::string>(field, std::move(words));
}

std::string algorithm_names(Collective collective) {
  std::string names;
  for (const auto& each : collectives::algorithms(collective)) names += fmt::format(", {}", each.name);
  return names;
}

/// A type for all links, or types by link: "inter=int4,intra=int8". Links that are not named have the data's type.
OptionBinding wire_types(collectives::WireTypes::Links& field, std::vector<WireType> types) {
  std::vector<std::string> words;
  for (const WireType type : types) words.emplace_back(to_string(type));
  const auto read = [&field, types](const std::string& given) {
    const auto type_of = [&](std::string_view name) -> std::optional<WireType> {
      const auto found =
          std::ranges::find(types, name, [](WireType type) { return std::string_view(to_string(type)); });
      return found == types.end() ? std::nullopt : std::optional(*found);
    };
    if (const auto all = type_of(given)) {
      field = {*all, *all};
      return true;
    }
    std::optional<WireType> intra, inter;
    for (const std::string& item : items_of(given)) {
      const std::string_view text = item;
      const bool is_inter = text.starts_with(inter_links);
      if (!is_inter && !text.starts_with(intra_links)) return false;
      std::optional<WireType>& named = is_inter ? inter : intra;
      if (named) return false;
      named = type_of(text.substr(inter_links.size()));
      if (!named) return false;
    }
    field = {intra.value_or(WireType::same), inter.value_or(WireType::same)};
    return true;
  };
  return parsed(
      fmt::format("{}, or types by link such as inter={}", fmt::join(words, ", "), words.back()), read,
      [&field] { return wire_text(field); }, words);
}

}  // namespace

std::string wire_text(const collectives::WireTypes::Links& links) {
  const auto [intra, inter] = links;
  if (intra == inter) return to_string(intra);
  std::vector<std::string> items;
  if (inter != WireType::same) items.push_back(fmt::format("{}{}", inter_links, to_string(inter)));
  if (intra != WireType::same) items.push_back(fmt::format("{}{}", intra_links, to_string(intra)));
  return fmt::format("{}", fmt::join(items, ","));
}

bool has_algorithm(Collective collective, std::string_view name) {
  const auto all = collectives::algorithms(collective);
  return std::ranges::any_of(all, [&](const auto& each) { return each.name == name; });
}

std::vector<std::string> all_algorithm_names() {
  std::vector<std::string> names;
  for (const auto& [collective, field] : algorithm_fields)
    for (const auto& each : collectives::algorithms(collective))
      if (std::ranges::find(names, each.name) == names.end()) names.emplace_back(each.name);
  return names;
}

void declare_sharding(TrainTable& table, actors::TrainerOptions& trainer, ShardOptions& shard) {
  const auto is_one_row = [&trainer] { return trainer.grid.g_data == 1; };
  const NoEffect one_row = unused_if(is_one_row, "with one row (--g-data 1)");
  const auto all_stay = [=, &trainer] {
    const auto [frozen, trained] = trainer.shardings();
    const auto& tiers = trainer.tiers;
    const bool gathers =
        frozen.parameters != collectives::Scope::none || trained.parameters != collectives::Scope::none;
    const bool on_device = !tiers.parameters_leave() && tiers.gradients == actors::TierKind::device &&
                           tiers.optimizer == actors::TierKind::device &&
                           tiers.activations == actors::TierKind::device;
    return (is_one_row() || !gathers) && on_device;
  };
  const NoEffect nothing_moves =
      unused_if(all_stay, "if all states stay on the device and no parameters are gathered");
  const NoEffect nothing_gathered = [=, &trainer]() -> std::string {
    if (is_one_row()) return one_row();
    const auto [frozen, trained] = trainer.shardings();
    const auto stays = [](const collectives::Sharding& sharding) {
      return sharding.parameters == collectives::Scope::none && sharding.optimizer == collectives::Scope::none;
    };
    return stays(frozen) && stays(trained) ? "if every row has all parameters and optimizer states" : "";
  };
  // Algorithm, rows and nodes set the order of sums over rows; gathers do not add.
  table.concern("Sharding");
  table.add({Effect::rounding, "shard", "NAME",
             "Scopes of parameters, gradients and optimizer states: three letters such as IIG (N: not sharded, I: "
             "over a group, G: over all rows), or a name: " +
                 shard_names(),
             sharding(trainer.sharding)},
            {.also = "zero-stage stage fsdp=zero3 use-distributed-optimizer=zero1",
             .usual = true,
             .plan = PlanRole::searched,
             .unused = one_row});
  table.add({Effect::rounding, "shard-trained", "NAME",
             "With frozen parameters: sharding of the trained ones; --shard is then for the frozen ones only",
             trained_sharding(trainer.trained_sharding), "same as --shard"},
            {.fixes = "shard", .unused = one_row});
  table.add({Effect::rounding, "group-size", "N", "Rows per group (letter I of --shard); must divide --g-data",
             whole(trainer.group_size, 0, max_count), "the rows on one node"},
            {.plan = PlanRole::searched, .unused = one_row});
  table.add({Effect::rounding, "node-size", "N", "Ranks per node, as if rank r were on node r / N; 0 asks MPI",
             whole(shard.node_size, 0, max_count), "0; with --world 8, or all ranks if fewer"},
            {.plan = PlanRole::machine});
  table.add({Effect::rounding, "links", "FILE",
             "JSON file with measured latencies and bandwidths (ranvier-bench --write-links), for the choice of "
             "collective algorithms",
             text(shard.links)},
            {.unused = one_row});
  const NoEffect sent_directly = [=, &trainer]() -> std::string {
    if (is_one_row()) return one_row();
    const auto [intra, inter] = trainer.wire.reduce;
    const bool direct = intra != WireType::same && inter != WireType::same;
    return direct ? "with --reduce-dtype on all links, whose messages go directly to owners" : "";
  };
  for (const auto& [collective, field] : algorithm_fields) {
    table.add(
        {collective == Collective::all_gather ? Effect::bits : Effect::rounding, to_string(collective), "NAME",
         fmt::format("Algorithm of the {}: auto (the fastest for --links){}", to_string(collective),
                     algorithm_names(collective)),
         algorithm(trainer.algorithms.*field, collective)},
        {.plan = PlanRole::searched, .unused = collective == Collective::all_gather ? one_row : sent_directly});
  }
  // Other types change losses by more than the order of sums does, as --moment-dtype can.
  table.add(
      {Effect::decides, "gather-dtype", "TYPE",
       "Type of parameters in messages of gathers: same (as --precision) or int8 with a scale per 256 elements; "
       "inter=int8 or intra=int8 for links between or inside nodes only",
       wire_types(trainer.wire.gather, {WireType::same, WireType::int8})},
      {.also = "zero-quantized-weights=int8", .unused = nothing_gathered});
  table.add(
      {Effect::decides, "reduce-dtype", "TYPE",
       "Type of gradients in messages of reductions: same (as --gradient-dtype), int8 or int4 with a scale per "
       "256 elements; or by link, such as inter=int4,intra=int8",
       wire_types(trainer.wire.reduce, {WireType::same, WireType::int8, WireType::int4})},
      {.also = "zero-quantized-gradients=int4", .unused = one_row});
  table.add({Effect::bits, "prefetch", "N",
             "Number of units (layers) to gather ahead of use; 0 disables prefetching; auto: 2, or fewer if "
             "--device-memory is short",
             or_word(shard.prefetch, "auto", {}, whole(shard.prefetch, 0, max_count),
                     "a number of units, 0 for none, or auto")},
            {.unused = nothing_moves});
  table.add({Effect::bits, "reuse", "on|off",
             "Keep gathered parameters until another unit needs the buffer; off: gather before every use, as ZeRO "
             "and MiCS do",
             toggle(trainer.reuse)},
            {.unused = nothing_moves});
}

void resolve_sharding(TrainOptions& options, bool imagined) {
  auto& trainer = options.trainer;
  auto& shard = options.shard;
  if (trainer.group_size > 0) collectives::check_group_size(trainer.group_size, trainer.grid.g_data);
  if (shard.prefetch) trainer.prefetch = *shard.prefetch;
  if (imagined && shard.node_size == 0) shard.node_size = std::min(imagined_node_size, options.ranks);
  if (!shard.links.empty()) trainer.links = collectives::read_links(shard.links);
}

void check_flags_of_part(const TrainOptions& options) {
  if (options.model.adapts() || !options.model.train.empty() || !options.model.freeze.empty()) return;
  const auto refuse = [](const char* flag, const std::string& value) {
    reject("--{}-trained {} needs a partly frozen model; use --{} {}, or add --lora-rank, --train or --freeze",
           flag, value, flag, value);
  };
  const actors::TrainerOptions& trainer = options.trainer;
  if (trainer.trained_sharding) refuse("shard", to_string(*trainer.trained_sharding));
  if (const auto& tier = trainer.tiers.trained_parameters) refuse("parameter-tier", offload::to_string(*tier));
}

}  // namespace ranvier::apps
