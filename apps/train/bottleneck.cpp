#include "apps/train/report.hpp"

#include "actors/rank/rank_plan.hpp"
#include "actors/schedule/stage_split.hpp"
#include "runtime/base/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace ranvier::apps {
namespace {

constexpr double mostly = 0.75;       // fraction of the time above which only computing is reported
constexpr double worth_a_word = 0.1;  // smallest fraction of the time that is reported

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string microbatches_text(int count) { return fmt::format("{} microbatch{}", count, count == 1 ? "" : "es"); }

bool weights_wait(const actors::TrainerOptions& options) {
  return (options.defer_weights || actors::defers_weights(options.policy)) && options.deferred_limit != 0;
}

/// Flags that reduce the bubble and are compatible with the run's other flags.
std::string bubble_advice(const actors::TrainerOptions& options) {
  std::string advice = "a larger --batch-size";
  if (options.microbatch_size > 1) advice = "a smaller --microbatch-size, " + advice;
  if (options.policy == actors::Policy::zb_h1) return advice + " or a smaller --g-inter";  // one slice per rank
  advice += ", a smaller --g-inter";
  if (!weights_wait(options)) advice += ", --policy zero-bubble";
  return advice + " or more --chunks-per-rank";
}

/// Fractions of the time, means over ranks.
struct Shares {
  double computed = 0, optimizer = 0, gathering = 0, reducing = 0, files = 0, checkpoints = 0;
  std::vector<double> stages;  ///< fraction computed, mean over the ranks of each stage

  [[nodiscard]] double disk() const { return files + checkpoints; }
};

/// nullopt if a rank has not trained.
std::optional<Shares> shares_of(const std::vector<RankTotals>& ranks, const runtime::GridShape& shape) {
  if (ranks.empty()) return std::nullopt;
  const runtime::Grid grid(shape, shape.ranks());
  Shares all{.stages = std::vector<double>(static_cast<std::size_t>(shape.g_inter))};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankTotals& rank = ranks[r];
    if (rank.seconds <= 0) return std::nullopt;
    const double part = 1 / (rank.seconds * static_cast<double>(ranks.size()));
    const double passes = (rank.forward + rank.backward + rank.weights) * part;
    all.computed += passes;
    all.optimizer += rank.optimizer * part;
    all.gathering += rank.gather * part;
    all.reducing += rank.reduce * part;
    all.files += rank.files * part;
    all.checkpoints += rank.checkpoint * part;
    const int stage = grid.position(static_cast<int>(r)).stage;
    all.stages[static_cast<std::size_t>(stage)] += passes * shape.g_inter;
  }
  return all;
}

std::string of_computing(const Shares& shares, const actors::TrainerOptions& options) {
  return fmt::format("computing, {} of the time: use more rows (--g-data){}", percent(shares.computed),
                     options.precision.compute == runtime::DType::f32
                         ? ", or --precision bf16 if the device multiplies it faster (GPUs, AMX)"
                         : "");
}

std::string of_optimizer(const Shares& shares, const actors::TrainerOptions& options) {
  const bool off_device = options.tiers.optimizer != actors::TierKind::device;
  return fmt::format("optimizer, {} of the time: use a larger --batch-size (fewer steps), or {}",
                     percent(shares.optimizer),
                     off_device ? "--optimizer-tier device (no transfers)" : "--shard zero1 (sharded states)");
}

std::string of_disk(const Shares& shares) {
  const std::string waited = fmt::format("disk, waiting {} of the time: use ", percent(shares.disk()));
  if (shares.checkpoints > shares.files)
    return waited + "a larger --checkpoint-every, or a --checkpoint folder on a faster disk";
  return waited +
         "several disks (--nvme DIR,DIR), an --offload with fewer states in files, or a larger --batch-size (fewer "
         "transfers)";
}

/// Whether another split of the layers would balance the stages better. A stage's computing time is divided among its
/// layers in proportion to their floating-point operations.
bool another_split_helps(const Shares& shares, const actors::TrainerOptions& options,
                         const models::Architecture& architecture) {
  const actors::SliceMap map = actors::slice_map(options);
  const auto slices = actors::slice_layers(architecture, map, options.layers_per_stage);
  std::vector<double> flops(shares.stages.size(), 0.0);
  std::vector<actors::LayerSeconds> layers(architecture.layers.size());
  const std::vector<std::size_t> stage_of = actors::stages_of_layers(slices, map);
  for (std::size_t l = 0; l < layers.size(); ++l) flops[stage_of[l]] += architecture.flops_per_sample(l);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t stage = stage_of[l];
    if (flops[stage] > 0)
      layers[l].forward = shares.stages[stage] * architecture.flops_per_sample(l) / flops[stage];
  }
  return actors::advise_split(layers, architecture, slices, map, actors::microbatches_of(options)).helps();
}

std::string of_stage(std::size_t stage, const Shares& shares, bool split_helps) {
  return fmt::format("stage {}, computing {} of the time (average stage: {}): use {}", stage,
                     percent(shares.stages[stage]), percent(shares.computed),
                     split_helps ? "--rebalance to measure a balanced --layers-per-stage"
                                 : "a smaller --g-inter; no other --layers-per-stage is faster");
}

std::string of_links(const Shares& shares) {
  if (shares.gathering > shares.reducing)
    return fmt::format(
        "links, gathering {} of the time: use a --shard that keeps parameters inside the node (mics, paro-iig), a "
        "larger --prefetch, or --gather-dtype int8 (rounds parameters)",
        percent(shares.gathering));
  return fmt::format(
      "links, reducing {} of the time: use a larger --batch-size (fewer reductions), other --reduce-scatter and "
      "--all-reduce algorithms, or --reduce-dtype int8 (rounds gradients)",
      percent(shares.reducing));
}

}  // namespace

Bubble bubble_of(const actors::TrainerOptions& options) {
  const double others = options.grid.g_inter - 1;
  const double passes = static_cast<double>(options.chunks_per_rank) * actors::microbatches_of(options);
  // Forward pass, input gradient and weight gradient take a third each; the next stage waits for the first two.
  // Deferred weight gradients fill idle time. Recomputation adds a fourth part.
  const bool recomputes = options.recompute > 0 || options.recompute_auto;
  const double waited_for = recomputes ? 1 : 2.0 / 3,
               filled = weights_wait(options) ? (recomputes ? 0.5 : 1.0 / 3) : 0;
  double idle = (waited_for - filled) * others / passes;  // relative to the computing time
  if (options.policy == actors::Policy::gpipe && options.pipeline_limit > 0) {
    const int microbatches = actors::microbatches_of(options);
    idle *= (microbatches + options.pipeline_limit - 1) /
            options.pipeline_limit;  // waves, each of which fills and drains the pipeline
  }
  return {.share = idle / (1 + idle), .at_most = recomputes};
}

std::string bubble_text(const actors::TrainerOptions& options) {
  const Bubble bubble = bubble_of(options);
  return fmt::format(
      "{}{:.1f}% with {}{}", bubble.at_most ? "at most " : "", 100 * bubble.share,
      microbatches_text(actors::microbatches_of(options)),
      options.chunks_per_rank > 1 ? fmt::format(" in {} chunks", options.chunks_per_rank) : std::string());
}

std::string bottleneck_line(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options,
                            const models::Architecture& architecture) {
  const std::optional<Shares> found = shares_of(ranks, options.grid);
  if (!found) return {};
  const Shares& shares = *found;
  if (shares.computed >= mostly) return "bottleneck: " + of_computing(shares, options);
  const double idle = 1 - shares.computed;
  const auto busiest = std::ranges::max_element(shares.stages);
  const double bubble = bubble_of(options).share;
  // Largest known cause of idle time. Messages mostly overlap computing.
  const double imbalance = *busiest - shares.computed;
  const double links = std::min(idle, std::max(shares.gathering, shares.reducing));
  const double largest = std::max({imbalance, bubble, shares.optimizer, shares.disk(), links});
  const auto is_largest = [largest](double share) { return share == largest && share >= worth_a_word; };
  std::string cause;
  if (is_largest(shares.disk())) {
    cause = of_disk(shares);
  } else if (is_largest(shares.optimizer)) {
    cause = of_optimizer(shares, options);
  } else if (is_largest(imbalance)) {
    cause = of_stage(static_cast<std::size_t>(busiest - shares.stages.begin()), shares,
                     another_split_helps(shares, options, architecture));
  } else if (is_largest(links)) {
    cause = of_links(shares);
  } else if (bubble >= 0.4 * idle) {
    cause = fmt::format("pipeline bubble, {}: use {}", bubble_text(options), bubble_advice(options));
  } else {
    cause =
        "overhead between passes (messages, launches, ranks that share cores): use a larger --microbatch-size, or "
        "fewer ranks per machine";
  }
  return fmt::format("bottleneck: {}; computing: {} of the time", cause, percent(shares.computed));
}

}  // namespace ranvier::apps
