#include "apps/train/limits.hpp"

#include "actors/rank/rank_plan.hpp"
#include "runtime/grid.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

constexpr double mostly = 0.75;     // of the time: then nothing else is worth a word
constexpr double unbalanced = 0.1;  // of the time, that the busiest stage computes more than the average one

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

}  // namespace

double bubble_of(const actors::TrainerOptions& options) {
  const double others = options.grid.g_inter - 1;
  const double passes = static_cast<double>(options.chunks_per_rank) * actors::microbatches_of(options);
  return others / (passes + others);
}

std::string limit_line(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options) {
  const runtime::GridShape& shape = options.grid;
  const runtime::Grid grid(shape, shape.ranks());
  std::vector<double> stages(static_cast<std::size_t>(shape.g_inter));
  double computed = 0, optimizer = 0, gathering = 0, reducing = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankTotals& rank = ranks[r];
    if (rank.seconds <= 0) return {};
    const double part = 1 / (rank.seconds * static_cast<double>(ranks.size()));
    const double passes = (rank.forward + rank.backward + rank.weights) * part;
    computed += passes;
    optimizer += rank.optimizer * part;
    gathering += rank.gather * part;
    reducing += rank.reduce * part;
    const int stage = grid.position(static_cast<int>(r)).stage;
    stages[static_cast<std::size_t>(stage)] += passes * shape.g_inter;
  }
  if (ranks.empty()) return {};
  const bool off_device = options.tiers.optimizer != actors::TierKind::device;
  if (computed >= mostly)
    return fmt::format("limited by computing, {} of the time: more rows (--g-data), or --precision bf16 on a GPU",
                       percent(computed));
  const double idle = 1 - computed;
  const auto busiest = std::max_element(stages.begin(), stages.end());
  const double bubble = bubble_of(options);
  // Of what is idle the largest part that has a cause; messages mostly go on while ranks compute.
  const double imbalance = *busiest - computed;
  const double links = std::min(idle, std::max(gathering, reducing));
  const double largest = std::max({imbalance, bubble, optimizer, links});
  std::string cause;
  if (optimizer == largest && optimizer >= 0.1) {
    cause =
        fmt::format("the optimizer, {} of the time: {}", percent(optimizer),
                    off_device ? "a larger --batch-size has fewer steps, --optimizer-tier device needs no transfers"
                               : "a larger --batch-size has fewer steps, --shard zero1 shares them out");
  } else if (imbalance == largest && imbalance >= unbalanced) {
    cause = fmt::format(
        "waiting for stage {}, which computes {} of the time where an average one computes {}: {} that evens that "
        "out, and another --g-inter cuts the layers elsewhere",
        busiest - stages.begin(), percent(*busiest), percent(computed),
        options.chunks_per_rank > 1 ? "give a --layers-per-stage" : "--rebalance finds the --layers-per-stage");
  } else if (links == largest && links > 0.1) {
    cause = gathering > reducing
                ? fmt::format(
                      "links, with gathering under way {} of the time: a --shard that keeps parameters in the "
                      "node (mics, paro-iig), or a larger --prefetch",
                      percent(gathering))
                : fmt::format(
                      "links, with reductions under way {} of the time: a larger --batch-size has fewer, "
                      "--reduce-scatter and --all-reduce choose how",
                      percent(reducing));
  } else if (bubble >= 0.4 * idle) {
    cause = fmt::format(
        "the pipeline's bubble, {} with {} microbatches: a smaller --microbatch-size, a larger "
        "--batch-size, a smaller --g-inter or more --chunks-per-rank",
        percent(bubble), actors::microbatches_of(options));
  } else {
    cause =
        "what comes between passes (messages, launches, ranks that share cores): a larger --microbatch-size, or "
        "fewer "
        "ranks on a machine";
  }
  return fmt::format("limited by {}; computing took {}", cause, percent(computed));
}

}  // namespace ranvier::apps
