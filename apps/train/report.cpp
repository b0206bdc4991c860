#include "apps/train/report.hpp"

#include "actors/predict/operation_count.hpp"
#include "actors/watch/reporter.hpp"
#include "apps/memory/job_memory.hpp"
#include "apps/memory/job_plan.hpp"
#include "apps/options/flag_groups.hpp"
#include "apps/program/text_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

/// Limits for the startup output; --dry-run prints everything.
constexpr std::size_t max_given_lines = 5, max_chosen_lines = 2, max_stage_lines = 8;
constexpr std::size_t min_layers_columns = 8;
constexpr std::size_t recompute_cell = 2;  // index in stage_cells()

/// Layers of consecutive stages, slice by slice.
std::string names_of_stages(const models::Architecture& architecture, const actors::RankPlan& first,
                            const actors::RankPlan& last) {
  std::string names;
  for (std::size_t s = 0; s < first.layers.size(); ++s)
    names += (s > 0 ? ", " : "") + layer_names(architecture, {first.layers[s].begin, last.layers[s].end});
  return names;
}

double share_of_cost(const models::Architecture& architecture, const std::vector<models::LayerRange>& slices) {
  double cost = 0;
  for (const models::LayerRange& range : slices) {
    for (std::size_t l = range.begin; l < range.end; ++l) cost += architecture.flops_per_sample(l);
  }
  return cost;
}

/// Cells of a stage's line after its layers.
TextTable::Row stage_cells(const models::Architecture& architecture, const actors::RankPlan& stage) {
  const auto bytes = [&](MemoryKind kind) { return stage.memory.bytes(MemorySpace::device, kind); };
  using runtime::format_bytes;
  const double share = share_of_cost(architecture, stage.layers) / architecture.flops_per_sample();
  return {fmt::format("{:.1f}%", 100 * share),
          fmt::format("{}", fmt::join(stage.slots, "+")),
          stage.recompute > 0 ? fmt::format("{}", stage.recompute) : "off",
          format_bytes(bytes(MemoryKind::parameters)),
          format_bytes(bytes(MemoryKind::gradients)),
          format_bytes(bytes(MemoryKind::optimizer)),
          format_bytes(bytes(MemoryKind::activations)),
          format_bytes(bytes(MemoryKind::messages) + bytes(MemoryKind::workspace)),
          format_bytes(stage.memory.bytes(MemorySpace::device))};
}

/// Consecutive stages with equal cells.
struct StageLine {
  std::size_t first = 0, last = 0;
  TextTable::Row cells;
};

std::vector<StageLine> stage_lines(const models::Architecture& architecture,
                                   const std::vector<actors::RankPlan>& stages) {
  std::vector<StageLine> lines;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    TextTable::Row cells = stage_cells(architecture, stages[s]);
    if (lines.empty() || lines.back().cells != cells) lines.push_back({s, s, std::move(cells)});
    lines.back().last = s;
  }
  return lines;
}

/// Selects the first two lines, the last one, the one with most memory and the one that computes most.
std::vector<StageLine> folded(std::vector<StageLine> lines, const models::Architecture& architecture,
                              const std::vector<actors::RankPlan>& stages) {
  const auto most = [&](auto of) {
    return std::ranges::max_element(
               lines,
               [&](const StageLine& a, const StageLine& b) { return of(stages[a.first]) < of(stages[b.first]); }) -
           lines.begin();
  };
  const std::ptrdiff_t largest =
      most([](const actors::RankPlan& stage) { return stage.memory.bytes(MemorySpace::device); });
  const std::ptrdiff_t busiest =
      most([&](const actors::RankPlan& stage) { return share_of_cost(architecture, stage.layers); });
  const std::set<std::ptrdiff_t> kept{0, 1, std::ssize(lines) - 1, largest, busiest};
  std::vector<StageLine> some;
  for (const std::ptrdiff_t line : kept) some.push_back(std::move(lines[static_cast<std::size_t>(line)]));
  return some;
}

/// Memory per rank of each stage. `all`: all lines, full width.
std::string stage_table(const models::Architecture& architecture, const std::vector<actors::RankPlan>& stages,
                        bool all) {
  std::vector<StageLine> lines = stage_lines(architecture, stages);
  if (!all && lines.size() > max_stage_lines) lines = folded(std::move(lines), architecture, stages);
  std::vector<TextTable::Column> columns{{"stage"}, {"layers", true}, {"cost"}, {"slots"}};
  const bool recomputes = std::ranges::any_of(stages, [](const auto& stage) { return stage.recompute > 0; });
  if (recomputes) columns.push_back({"recompute"});
  for (const char* title : {"parameters", "gradients", "optimizer", "activations", "other", "per rank"})
    columns.push_back({title});
  const auto table_of = [&](std::size_t layers_columns) {
    TextTable table(columns);
    for (const StageLine& line : lines) {
      TextTable::Row row{
          line.last > line.first ? fmt::format("{}-{}", line.first, line.last) : fmt::format("{}", line.first),
          shortened(names_of_stages(architecture, stages[line.first], stages[line.last]), layers_columns)};
      for (std::size_t c = 0; c < line.cells.size(); ++c)
        if (recomputes || c != recompute_cell) row.push_back(line.cells[c]);
      table.add(std::move(row));
    }
    return table;
  };
  TextTable table = table_of(std::string::npos);
  if (!all && table.width() > screen_columns) {
    const std::size_t others = table.width() - table.width_of(1);
    table = table_of(std::max(min_layers_columns, screen_columns - std::min(others, screen_columns)));
  }
  std::size_t left_out = stages.size();
  for (const StageLine& line : lines) left_out -= line.last + 1 - line.first;
  if (left_out == 0) return table.text();
  return table.text() + fmt::format("and {} more stages; use --dry-run to list all\n", left_out);
}

/// "--steps 60", quoted for a shell.
std::string flag_text(const ResolvedOption& option) {
  if (option.is_switch) return "--" + option.name;
  constexpr std::size_t max_columns = 60;
  std::string value = shortened(option.value, max_columns);
  if (value.find_first_of(" \t\n$&;|<>()*?#\"\\") != std::string::npos) value = fmt::format("'{}'", value);
  return fmt::format("--{} {}", option.name, value);
}

/// Flags in at most `max_lines` lines, none split.
std::string flag_lines(std::string_view title, const std::vector<std::string>& flags, std::size_t max_lines) {
  constexpr std::size_t indent = 9;
  std::string text = fmt::format("{:<{}}", title, indent);
  std::size_t lines = 1, column = indent;
  for (std::size_t f = 0; f < flags.size(); ++f) {
    const std::size_t columns = display_columns(flags[f]);
    // The last line reserves space for the number of flags left out.
    const std::size_t capacity =
        screen_columns - (lines == max_lines ? std::string_view("… and 100 more").size() : 0);
    if (column > indent && column + columns > capacity) {
      if (lines++ == max_lines) return text + fmt::format("… and {} more\n", flags.size() - f);
      text.back() = '\n';
      text.append(indent, ' ');
      column = indent;
    }
    text += flags[f] + ' ';
    column += columns + 1;
  }
  text.back() = '\n';
  return text;
}

/// All flags, grouped by concern.
std::string all_flags(const TrainOptions& options) {
  std::string text, concern;
  for (const ResolvedOption& option : resolved(options)) {
    if (option.value.empty()) continue;
    if (option.concern != concern) {
      concern = option.concern;
      text += fmt::format("{}{:<12}", text.empty() ? "" : "\n", concern);
    }
    text += fmt::format("  {} {}", option.name, option.value);
  }
  return text + '\n';
}

/// Given flags, and flags whose values follow from them.
std::string given_flags(const TrainOptions& options) {
  std::map<std::string_view, std::string_view> defaults;
  const std::vector<ResolvedOption> untouched = default_flags();
  for (const ResolvedOption& option : untouched) defaults[option.name] = option.value;
  std::vector<std::string> given, chosen;
  for (const ResolvedOption& option : resolved(options)) {
    const bool was_given = std::ranges::find(options.given, option.name) != options.given.end();
    const auto untouched_value = defaults.find(option.name);
    if (option.value.empty() || option.name == "world" || untouched_value == defaults.end()) continue;
    if (!was_given && untouched_value->second == option.value) continue;
    if (option.is_switch && option.value != "on") continue;
    (was_given ? given : chosen).push_back(flag_text(option));
  }
  std::string text;
  if (!given.empty()) text += flag_lines("given", given, max_given_lines);
  if (!chosen.empty()) text += flag_lines("chosen", chosen, max_chosen_lines);
  return text;
}

/// Wraps to the columns of a screen.
std::string screen_lines(const std::string& line) {
  return fmt::format("{}\n", fmt::join(wrapped(line, screen_columns), "\n"));
}

/// Whether updates wait for a decision of all ranks, and the memory that this needs.
std::string answer_line(const actors::TrainerOptions& options, const std::vector<actors::RankPlan>& stages) {
  std::size_t chunks = 0;
  for (const actors::RankPlan& stage : stages) chunks = std::max(chunks, stage.chunks.chunks.size());
  if (stages.front().optimizer.commit_mode == offload::CommitMode::always) {
    return fmt::format(
        "every step is committed: updates overlap with reductions, in up to {} gradient chunks per rank", chunks);
  }
  const bool clips = options.clip > 0;
  const char* name = clips ? "clipping" : options.loss_scale.dynamic ? "loss scaling" : "bad-step check";
  std::string waits = fmt::format("{}: updates wait for the global gradient norm", name);
  if (options.tiers.optimizer == actors::TierKind::device) return waits + "; this needs no memory";
  std::size_t most = 0;
  for (const actors::RankPlan& stage : stages) {
    const auto& slots = stage.optimizer.states.slots;
    if (!slots) continue;
    const runtime::MemoryItem& item = stage.memory.items()[slots->index];
    most = std::max(most, item.slots * item.slot_bytes);
  }
  std::size_t copy = 0;
  for (const actors::RankPlan& stage : stages) {
    std::size_t bytes = 0;
    for (const actors::ShardRecords& states : stage.optimizer.states.states) bytes += states.region_bytes();
    copy = std::max(copy, bytes);
  }
  const std::string spare = fmt::format("{} per rank in the {} tier", runtime::format_bytes(copy),
                                        offload::to_string(options.tiers.optimizer));
  if (options.tiers.commit == actors::Commit::flip) {
    return fmt::format(
        "{}: chunks are updated as they are reduced, into spare copies of up to {}, committed if {}; "
        "--optimizer-commit wait needs no copies and updates after the global gradient norm",
        name, spare, clips ? "nothing is clipped" : "nothing overflows");
  }
  waits += most == 0 ? std::string("; this needs no memory")
                     : fmt::format(", with up to {} of states fetched meanwhile", runtime::format_bytes(most));
  if (!stages.front().states->separate_master() || copy == 0 || options.tiers.rule == actors::UpdateRule::muon)
    return waits;
  return fmt::format("{}; --optimizer-commit flip updates earlier, with spare copies of up to {}", waits, spare);
}

/// Time of the optimizer after the global gradient norm, and commits of --optimizer-commit flip.
std::string after_answers(const std::vector<RankTotals>& ranks, actors::Commit commit) {
  const auto seconds = [](const RankTotals& rank) {
    return rank.answers.steps == 0 ? 0.0 : rank.answers.seconds / static_cast<double>(rank.answers.steps);
  };
  double slowest = 0;
  std::int64_t ahead = 0, buckets = 0;
  for (const RankTotals& rank : ranks) {
    slowest = std::max(slowest, seconds(rank));
    ahead += rank.answers.buckets_ahead;
    buckets += rank.answers.buckets;
  }
  const auto& answers = ranks.front().answers;
  if (answers.steps == 0) return {};
  std::string text = fmt::format(
      "optimizer after the global gradient norm: up to {:.1f} ms per step (mean), while the next step computes\n",
      1e3 * slowest);
  if (commit == actors::Commit::flip) {
    text += fmt::format(
        "commits: {} of {} steps flipped, {:.0f}% of their buckets updated early; {} clipped and updated again, {} "
        "skipped\n",
        answers.flipped, answers.steps,
        buckets > 0 ? 100 * static_cast<double>(ahead) / static_cast<double>(buckets) : 0.0, answers.again,
        answers.skipped);
  }
  return text;
}

/// Largest bucket: at most the size of a unit, and a multiple of its shards' granule.
std::string bucket_line(std::size_t asked, const std::vector<actors::RankPlan>& stages) {
  std::size_t elements = 0, pieces = 0;
  bool used = false;
  for (const actors::RankPlan& stage : stages) {
    used = used || !stage.tiers.items().empty();
    for (const actors::UnitState& unit : stage.states->all()) {
      const std::size_t bucket = unit.cut.elements(unit.optimizer, 0);
      if (bucket <= elements) continue;
      elements = bucket;
      pieces = unit.cut.pieces(unit.optimizer);
    }
  }
  const bool more = elements > asked;
  if (!used && !more) return {};
  return fmt::format("buckets: up to {} elements per rank{}", elements,
                     more ? fmt::format(", rounded up from --bucket-size {} to {} for each of {} shard{}", asked,
                                        elements / pieces, pieces, pieces > 1 ? "s" : "")
                          : std::string());
}

/// "messages: parameters in int8 between nodes, gradients in int8"; empty if they have the types of the data.
std::string wire_line(const actors::TrainerOptions& trainer) {
  if (trainer.grid.g_data == 1 || trainer.wire == collectives::WireTypes()) return {};
  std::vector<std::string> items;
  const auto add = [&](const char* what, const collectives::WireTypes::Links& links) {
    const auto [intra, inter] = links;
    const auto add_type = [&](collectives::WireType type, const char* where) {
      if (type != collectives::WireType::same)
        items.push_back(fmt::format("{} in {}{}", what, to_string(type), where));
    };
    if (intra == inter) return add_type(inter, "");
    add_type(inter, " between nodes");
    add_type(intra, " inside nodes");
  };
  add("parameters", trainer.wire.gather);
  add("gradients", trainer.wire.reduce);
  return fmt::format("messages: {}\n", fmt::join(items, ", "));
}

}  // namespace

std::string layer_names(const models::Architecture& architecture, models::LayerRange range) {
  const std::string& first = architecture.layers[range.begin]->name();
  const std::string& last = architecture.layers[range.end - 1]->name();
  return range.end - range.begin == 1 ? first : fmt::format("{} … {}", first, last);
}

std::string start_table(const TrainOptions& options, const models::Architecture& architecture,
                        const std::vector<actors::RankPlan>& stages) {
  const bool all = options.run.request == Request::dry_run;
  std::string text = all ? all_flags(options) : given_flags(options);
  for (const std::string& note : options.notes) text += screen_lines(note);
  const double flops = architecture.flops_per_sample();
  const std::size_t parameters = architecture.parameters(), trained = architecture.trained_parameters();
  const auto count = [](std::size_t number) { return actors::format_count(static_cast<double>(number)); };
  text += fmt::format("\n{}: {} parameters{} in {} layers, {} model FLOP per {}\n", architecture.name,
                      count(parameters),
                      trained < parameters ? fmt::format(", of which {} are trained,", count(trained)) : "",
                      architecture.layers.size(), actors::format_count(flops / architecture.positions),
                      models::reads_images(options.model.sizes) ? "image" : "token");
  const runtime::GridShape& shape = options.trainer.grid;
  text += fmt::format("grid: {} stages × {} rows = {} ranks\n", shape.g_inter, shape.g_data, shape.ranks());
  text += wire_line(options.trainer) + '\n';
  text += stage_table(architecture, stages, all);
  std::vector<const actors::RankPlan*> plans;
  for (const actors::RankPlan& stage : stages) plans.push_back(&stage);
  const std::string saved = saved_activations_text(plans);
  text += '\n' + screen_lines(answer_line(options.trainer, stages));
  if (all || saved != "few") text += screen_lines("saved activations: " + saved);
  const actors::TierOptions& tiers = options.trainer.tiers;
  if (const std::string kept = units_in_budget(stages, tiers); !kept.empty())
    text +=
        screen_lines(fmt::format("optimizer states on the device: {}, in up to {} per rank (--optimizer-budget)",
                                 kept, runtime::format_bytes(tiers.optimizer_budget)));
  for (const auto& [kind, where] : {std::pair{actors::TierKind::host, std::string("host memory")},
                                    {actors::TierKind::nvme, "files in " + paths_text(tiers.files.directories)}}) {
    std::size_t most = 0;
    for (const actors::RankPlan& stage : stages) most = std::max(most, stage.tiers.bytes(kind));
    if (most > 0) {
      text +=
          screen_lines(fmt::format("off the device: up to {} per rank in {}", runtime::format_bytes(most), where));
    }
  }
  const std::string buckets = bucket_line(tiers.bucket_elements, stages);
  return buckets.empty() ? text : text + screen_lines(buckets);
}

std::string largest_memory_table(const std::vector<actors::RankPlan>& stages) {
  const auto largest = std::ranges::max_element(stages, [](const auto& a, const auto& b) {
    return a.memory.bytes(MemorySpace::device) < b.memory.bytes(MemorySpace::device);
  });
  return fmt::format("memory of a rank of stage {}:\n{}", largest->position.stage, largest->memory.table());
}

std::string operations_line(const std::vector<actors::RankPlan>& stages) {
  actors::OperationCount most;
  for (const actors::RankPlan& stage : stages) {
    const actors::OperationCount count = actors::count_operations(stage);
    if (count.launches() + count.messages > most.launches() + most.messages) most = count;
  }
  return fmt::format(
      "end of a batch per rank, with plans and states on the device: {} launches ({} {}, {} squared norms, {} "
      "copies, {} additions); {} collectives in {} messages\n",
      most.launches(), most.steps, to_string(stages.front().states->rule()), most.squares, most.copies,
      most.additions, most.collectives, most.messages);
}

namespace {

/// Always MiB, so that values of a column can be compared.
std::string in_mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

/// A column of times. `always`: shown even if all its values are 0.
struct Share {
  const char* title;
  double RankTotals::* seconds;
  bool always = true;
};

/// Largest number of ranks with one line each.
constexpr std::size_t max_ranks_alone = 16;

/// Ranks of each line of the end table: one (`alone`), or all of a stage.
std::vector<std::vector<std::size_t>> ranks_of_lines(const runtime::Grid& grid, std::size_t ranks, bool alone) {
  std::vector<std::vector<std::size_t>> lines(alone ? ranks : static_cast<std::size_t>(grid.shape().g_inter));
  for (std::size_t r = 0; r < ranks; ++r)
    lines[alone ? r : static_cast<std::size_t>(grid.position(static_cast<int>(r)).stage)].push_back(r);
  return lines;
}

}  // namespace

std::string end_table(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options) {
  static constexpr Share all[] = {
      {"forward", &RankTotals::forward},        {"backward", &RankTotals::backward},
      {"weights", &RankTotals::weights, false},  // included in backward unless deferred
      {"optimizer", &RankTotals::optimizer},    {"waiting", &RankTotals::wait},
      {"file wait", &RankTotals::files, false}, {"checkpoint wait", &RankTotals::checkpoint, false},
      {"sending", &RankTotals::send},           {"gathering", &RankTotals::gather},
      {"reducing", &RankTotals::reduce}};
  const runtime::Grid grid(options.grid, options.grid.ranks());
  const bool alone = ranks.size() <= max_ranks_alone;
  using Columns = std::vector<TextTable::Column>;
  Columns columns = alone ? Columns{{"rank"}, {"stage"}, {"row"}} : Columns{{"stage"}, {"ranks"}};
  std::vector<Share> shown;
  for (const Share& share : all) {
    const bool any = std::ranges::any_of(ranks, [&](const RankTotals& rank) { return rank.*share.seconds > 0; });
    if (!share.always && !any) continue;
    shown.push_back(share);
    columns.push_back({share.title});
  }
  for (const char* title : {"planned", "resident"}) columns.push_back({title});
  TextTable table(std::move(columns));
  double computed = 0, total = 0;
  for (const std::vector<std::size_t>& members : ranks_of_lines(grid, ranks.size(), alone)) {
    const auto sum_of = [&](double RankTotals::* seconds) {
      return std::accumulate(members.begin(), members.end(), 0.0,
                             [&](double sum, std::size_t r) { return sum + ranks[r].*seconds; });
    };
    const auto max_of = [&](std::size_t RankTotals::* bytes) {
      std::size_t most = 0;
      for (const std::size_t r : members) most = std::max(most, ranks[r].*bytes);
      return most;
    };
    const auto position = grid.position(static_cast<int>(members.front()));
    TextTable::Row row;
    if (alone) row.push_back(fmt::format("{}", members.front()));
    row.push_back(fmt::format("{}", position.stage));
    row.push_back(fmt::format("{}", alone ? static_cast<std::size_t>(position.row) : members.size()));
    const double seconds = sum_of(&RankTotals::seconds);
    for (const Share& share : shown)
      row.push_back(seconds > 0 ? fmt::format("{:.1f}%", 100 * sum_of(share.seconds) / seconds) : "–");
    row.push_back(in_mebibytes(max_of(&RankTotals::planned_bytes)));
    row.push_back(in_mebibytes(max_of(&RankTotals::peak_resident_bytes)));
    table.add(std::move(row));
    computed += sum_of(&RankTotals::forward) + sum_of(&RankTotals::backward) + sum_of(&RankTotals::weights);
    total += seconds;
  }
  std::string text = fmt::format("share of the time per {} (communication mostly overlaps computing)\n{}",
                                 alone ? "rank" : "stage", table.text());
  if (!alone) text += "memory: largest rank of the stage\n";
  if (total > 0) {
    text += fmt::format("stages idle {:.1f}% of the time", 100 * (1 - computed / total));
    if (options.grid.g_inter > 1) text += fmt::format("; pipeline bubble: {}", bubble_text(options));
    text += '\n';
  }
  if (!actors::every_step_counts(options)) text += after_answers(ranks, options.tiers.commit);
  return text;
}

}  // namespace ranvier::apps
