#include "apps/train/report.hpp"

#include "actors/exchange/operation_count.hpp"
#include "actors/watch/reporter.hpp"
#include "apps/train/limits.hpp"
#include "apps/train/options/tier_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ranvier::apps {

using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

std::string layer_names(const models::Architecture& architecture, models::LayerRange range) {
  const std::string& first = architecture.layers[range.begin]->name();
  const std::string& last = architecture.layers[range.end - 1]->name();
  return range.end - range.begin == 1 ? first : fmt::format("{} … {}", first, last);
}

/// Of stages that follow each other: slice by slice.
std::string layer_names(const models::Architecture& architecture, const actors::RankPlan& first,
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

std::string stage_columns(const models::Architecture& architecture, const actors::RankPlan& stage, double all) {
  const auto bytes = [&](MemoryKind kind) { return stage.memory.bytes(MemorySpace::device, kind); };
  using runtime::format_bytes;
  return fmt::format("{:>5.1f}% {:>5} {:>4} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
                     100 * share_of_cost(architecture, stage.layers) / all,
                     fmt::format("{}", fmt::join(stage.slots, "+")),
                     stage.recompute > 0 ? std::to_string(stage.recompute) : "off",
                     format_bytes(bytes(MemoryKind::parameters)), format_bytes(bytes(MemoryKind::gradients)),
                     format_bytes(bytes(MemoryKind::optimizer)), format_bytes(bytes(MemoryKind::activations)),
                     format_bytes(bytes(MemoryKind::messages) + bytes(MemoryKind::workspace)),
                     format_bytes(stage.memory.bytes(MemorySpace::device)));
}

/// Whether steps wait for an answer of all ranks, and what that costs.
std::string answer_line(const actors::TrainerOptions& options, const std::vector<actors::RankPlan>& stages) {
  std::size_t chunks = 0;
  for (const actors::RankPlan& stage : stages) chunks = std::max(chunks, stage.chunks.chunks.size());
  if (stages.front().optimizer.every_step_counts) {
    return fmt::format("every step counts: steps overlap with reductions, in up to {} chunks a rank\n", chunks);
  }
  const bool clips = options.clip > 0;
  const char* name = clips ? "clipping" : options.loss_scale.dynamic ? "loss scaling" : "bad steps do not count";
  std::string waits = fmt::format("{}: steps wait for the norm of all gradients", name);
  if (options.tiers.optimizer == actors::TierKind::device) return waits + "; no memory is needed for that\n";
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
    for (const offload::TierRegion& region : stage.optimizer.states.regions) {
      bytes += stage.tiers.items()[region.index].bytes;
    }
    copy = std::max(copy, bytes);
  }
  const std::string spare = fmt::format("{} a rank in the {} tier", runtime::format_bytes(copy),
                                        offload::to_string(options.tiers.optimizer));
  if (options.tiers.commit == actors::Commit::flip) {
    return fmt::format(
        "{}: chunks are stepped as they are reduced, into spare copies of up to {}, that count if {}; "
        "--optimizer-commit wait needs none, and steps after the norm of all gradients\n",
        name, spare, clips ? "nothing is clipped" : "nothing overflows");
  }
  waits += most == 0 ? std::string("; no memory is needed for that")
                     : fmt::format(", with up to {} of states fetched meanwhile", runtime::format_bytes(most));
  if (!stages.front().states->separate_master()) return waits + '\n';
  return fmt::format("{}; --optimizer-commit flip takes spare copies of up to {} to step before that\n", waits,
                     spare);
}

/// What was left to do once all ranks knew that a step counts.
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
      "after the norm of all gradients a step took up to {:.1f} ms on average, beside the next step's passes\n",
      1e3 * slowest);
  if (commit == actors::Commit::flip) {
    text += fmt::format(
        "of {} steps {} flipped, with {:.0f}% of their buckets stepped ahead; {} were clipped and stepped "
        "again, {} skipped\n",
        answers.steps, answers.flipped,
        buckets > 0 ? 100 * static_cast<double>(ahead) / static_cast<double>(buckets) : 0.0, answers.again,
        answers.skipped);
  }
  return text;
}

/// What --bucket-size comes to: the units' own sizes may say less, and the granule of their pieces more.
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
  return fmt::format("buckets: up to {} elements of what a rank steps{}\n", elements,
                     more ? fmt::format(", rounded up from --bucket-size {} to {} of each of its {} piece{}", asked,
                                        elements / pieces, pieces, pieces > 1 ? "s" : "")
                          : std::string());
}

}  // namespace

std::string start_table(const TrainOptions& options, const models::Architecture& architecture,
                        const std::vector<actors::RankPlan>& stages) {
  std::string text;
  std::string concern;
  for (const runtime::ResolvedOption& option : resolved(options)) {
    if (option.value.empty()) continue;
    if (option.concern != concern) {
      concern = option.concern;
      text += fmt::format("{}{:<12}", text.empty() ? "" : "\n", concern);
    }
    text += fmt::format("  {} {}", option.name, option.value);
  }
  if (!options.notes.empty()) text += '\n';
  for (const std::string& note : options.notes) text += '\n' + note;
  const double all = architecture.flops_per_sample();
  const std::size_t parameters = architecture.parameters(), trained = architecture.trained_parameters();
  const auto count = [](std::size_t number) { return actors::format_count(static_cast<double>(number)); };
  text += fmt::format("\n\n{}: {} parameters{} in {} layers, {} model FLOP per {}\n", architecture.name,
                      count(parameters),
                      trained < parameters ? fmt::format(", of which {} are trained,", count(trained)) : "",
                      architecture.layers.size(), actors::format_count(all / architecture.positions),
                      models::reads_images(options.model.sizes) ? "image" : "token");
  const runtime::GridShape& shape = options.trainer.grid;
  text += fmt::format("grid: {} stages × {} rows = {} ranks\n\n", shape.g_inter, shape.g_data, shape.ranks());
  text += fmt::format("{:>7}  {:<16} {:>6} {:>5} {:>4} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "stage",
                      "layers", "cost", "slots", "ac", "parameters", "gradients", "optimizer", "activations",
                      "other", "per rank");
  for (std::size_t s = 0; s < stages.size();) {
    // Neighbours that differ in nothing but their layers share a line.
    const std::string columns = stage_columns(architecture, stages[s], all);
    std::size_t last = s;
    while (last + 1 < stages.size() && stage_columns(architecture, stages[last + 1], all) == columns) ++last;
    text += fmt::format("{:>7}  {:<16} {}\n", last > s ? fmt::format("{}-{}", s, last) : std::to_string(s),
                        layer_names(architecture, stages[s], stages[last]), columns);
    s = last + 1;
  }
  text += '\n' + answer_line(options.trainer, stages);
  const actors::TierOptions& tiers = options.trainer.tiers;
  for (const auto& [kind, where] : {std::pair{actors::TierKind::host, std::string("host memory")},
                                    {actors::TierKind::nvme, "files in " + paths_text(tiers.files.directories)}}) {
    std::size_t most = 0;
    for (const actors::RankPlan& stage : stages) most = std::max(most, stage.tiers.bytes(kind));
    if (most > 0) {
      text += fmt::format("\noff the device: up to {} a rank in {}\n", runtime::format_bytes(most), where);
    }
  }
  return text + bucket_line(tiers.bucket_elements, stages);
}

std::string largest_memory_table(const std::vector<actors::RankPlan>& stages) {
  const auto largest = std::max_element(stages.begin(), stages.end(), [](const auto& a, const auto& b) {
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
      "a batch's end on a rank, with plans and states on the device: {} launches ({} of AdamW, {} of squares, {} "
      "copies, {} additions); {} collectives in {} messages\n",
      most.launches(), most.steps, most.squares, most.copies, most.additions, most.collectives, most.messages);
}

namespace {

/// What is to be compared with other such numbers, of which a tenth of a GiB is much.
std::string in_mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string end_table(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options) {
  // Weight gradients that do not wait are part of backward passes.
  const bool waited =
      std::any_of(ranks.begin(), ranks.end(), [](const RankTotals& rank) { return rank.weights > 0; });
  const auto weights = [&](const std::string& cell) {
    return waited ? fmt::format(" {:>8}", cell) : std::string();
  };
  std::string text = fmt::format(
      "share of the time that each rank computed, waited, and communicated (mostly while it computed)\n"
      "{:>5} {:>6} {:>4}  {:>8} {:>8}{} {:>9} {:>8} {:>8} {:>9} {:>8} {:>11} {:>11}\n",
      "rank", "stage", "row", "forward", "backward", weights("weights"), "optimizer", "waited", "sending",
      "gathering", "reducing", "planned", "resident");
  double computed = 0, total = 0;
  const runtime::Grid grid(options.grid, options.grid.ranks());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankTotals& rank = ranks[r];
    const auto position = grid.position(static_cast<int>(r));
    const auto percent = [&](double seconds) {
      return rank.seconds > 0 ? fmt::format("{:.1f}%", 100 * seconds / rank.seconds) : "–";
    };
    text += fmt::format("{:>5} {:>6} {:>4}  {:>8} {:>8}{} {:>9} {:>8} {:>8} {:>9} {:>8} {:>11} {:>11}\n", r,
                        position.stage, position.row, percent(rank.forward), percent(rank.backward),
                        weights(percent(rank.weights)), percent(rank.optimizer), percent(rank.wait),
                        percent(rank.send), percent(rank.gather), percent(rank.reduce),
                        in_mebibytes(rank.planned_bytes), in_mebibytes(rank.peak_resident_bytes));
    computed += rank.forward + rank.backward + rank.weights;
    total += rank.seconds;
  }
  const int microbatches = actors::microbatches_of(options);
  if (total > 0) {
    const bool waits = options.defer_weights || actors::defers_weights(options.policy);
    text += fmt::format(
        "stages idle {:.1f}% of the time; the pipeline's bubble with {} microbatches{} is {:.1f}%{}\n",
        100 * (1 - computed / total), microbatches,
        options.chunks_per_rank > 1 ? fmt::format(" in {} chunks", options.chunks_per_rank) : std::string(),
        100 * bubble_of(options), waits ? ", if no weight gradients waited" : "");
  }
  if (!actors::every_step_counts(options)) text += after_answers(ranks, options.tiers.commit);
  return text;
}

}  // namespace ranvier::apps
