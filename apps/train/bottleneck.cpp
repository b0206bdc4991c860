#include "apps/train/bottleneck.hpp"

#include "actors/pipeline/stage_split.hpp"
#include "actors/rank/rank_plan.hpp"
#include "runtime/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace ranvier::apps {
namespace {

constexpr double mostly = 0.75;       // of the time: then nothing else is worth a word
constexpr double worth_a_word = 0.1;  // of the time

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string microbatches_text(int count) { return fmt::format("{} microbatch{}", count, count == 1 ? "" : "es"); }

bool weights_wait(const actors::TrainerOptions& options) {
  return (options.defer_weights || actors::defers_weights(options.policy)) && options.deferred_limit != 0;
}

/// A smaller bubble, by what goes together with the run's other flags.
std::string bubble_advice(const actors::TrainerOptions& options) {
  std::string advice = "a larger --batch-size";
  if (options.microbatch_size > 1) advice = "a smaller --microbatch-size, " + advice;
  if (options.policy == actors::Policy::zb_h1) return advice + " or a smaller --g-inter";  // for one slice a rank
  advice += ", a smaller --g-inter";
  if (!weights_wait(options)) advice += ", --policy zero-bubble";
  return advice + " or more --chunks-per-rank";
}

/// Shares of the time of an average rank.
struct Shares {
  double computed = 0, optimizer = 0, gathering = 0, reducing = 0, files = 0, checkpoints = 0;
  std::vector<double> stages;  ///< of the average rank of each: computed

  [[nodiscard]] double disk() const { return files + checkpoints; }
};

/// Nothing: some rank has not trained.
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
  return fmt::format("computing, {} of the time: more rows (--g-data){}", percent(shares.computed),
                     options.precision.compute == runtime::DType::f32
                         ? ", or --precision bf16 where the device multiplies it faster (GPUs, AMX)"
                         : "");
}

std::string of_optimizer(const Shares& shares, const actors::TrainerOptions& options) {
  const bool off_device = options.tiers.optimizer != actors::TierKind::device;
  return fmt::format("the optimizer, {} of the time: a larger --batch-size has fewer steps, {}",
                     percent(shares.optimizer),
                     off_device ? "--optimizer-tier device needs no transfers" : "--shard zero1 shares them out");
}

std::string of_disk(const Shares& shares) {
  const std::string waited =
      fmt::format("the disk, for which work waited {} of the time: ", percent(shares.disk()));
  if (shares.checkpoints > shares.files)
    return waited + "--checkpoint-every more steps, or a --checkpoint folder on a faster disk";
  return waited +
         "--nvme DIR,DIR shares states out to several disks, another --offload keeps fewer of them there, a larger "
         "--batch-size moves them less often";
}

/// Whether stages would wait less for each other with another split of the layers, each of which takes its share, by
/// floating-point operations, of the time that its stage computed.
bool another_split_helps(const Shares& shares, const actors::TrainerOptions& options,
                         const models::Architecture& architecture) {
  const actors::SliceMap map = actors::slice_map(options);
  const auto slices = actors::slice_layers(architecture, map, options.layers_per_stage);
  std::vector<double> flops(shares.stages.size(), 0.0);
  std::vector<actors::LayerSeconds> layers(architecture.layers.size());
  const auto each_layer = [&](const auto& visit) {
    for (std::size_t k = 0; k < slices.size(); ++k)
      for (std::size_t l = slices[k].begin; l < slices[k].end; ++l)
        visit(l, static_cast<std::size_t>(map.stage_of(static_cast<int>(k))));
  };
  each_layer([&](std::size_t l, std::size_t stage) { flops[stage] += architecture.flops_per_sample(l); });
  each_layer([&](std::size_t l, std::size_t stage) {
    if (flops[stage] > 0)
      layers[l].forward = shares.stages[stage] * architecture.flops_per_sample(l) / flops[stage];
  });
  return actors::advise_split(layers, actors::kinds_of_layers(architecture), slices, map,
                              actors::microbatches_of(options))
      .helps();
}

std::string of_stage(std::size_t stage, const Shares& shares, bool split_helps) {
  return fmt::format("waiting for stage {}, which computes {} of the time where an average one computes {}: {}",
                     stage, percent(shares.stages[stage]), percent(shares.computed),
                     split_helps ? "--rebalance measures which --layers-per-stage makes that even"
                                 : "no other --layers-per-stage would be faster; use a smaller --g-inter");
}

std::string of_links(const Shares& shares) {
  if (shares.gathering > shares.reducing)
    return fmt::format(
        "links, with gathering under way {} of the time: a --shard that keeps parameters in the node (mics, "
        "paro-iig), or a larger --prefetch",
        percent(shares.gathering));
  return fmt::format(
      "links, with reductions under way {} of the time: a larger --batch-size has fewer, --reduce-scatter and "
      "--all-reduce choose how",
      percent(shares.reducing));
}

}  // namespace

Bubble bubble_of(const actors::TrainerOptions& options) {
  const double others = options.grid.g_inter - 1;
  const double passes = static_cast<double>(options.chunks_per_rank) * actors::microbatches_of(options);
  // A forward pass, an input gradient and a weight gradient are a third each: the next stage waits for the first two,
  // and where weight gradients wait they fill as much as they take. With recomputation there are four such parts.
  const bool recomputes = options.recompute > 0 || options.recompute_auto;
  const double waited_for = recomputes ? 1 : 2.0 / 3,
               filled = weights_wait(options) ? (recomputes ? 0.5 : 1.0 / 3) : 0;
  double idle = (waited_for - filled) * others / passes;  // over what is computed
  if (options.policy == actors::Policy::gpipe && options.pipeline_limit > 0) {
    const int microbatches = actors::microbatches_of(options);
    idle *= (microbatches + options.pipeline_limit - 1) / options.pipeline_limit;  // waves, which fill and drain
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
  if (shares.computed >= mostly) return "limited by " + of_computing(shares, options);
  const double idle = 1 - shares.computed;
  const auto busiest = std::max_element(shares.stages.begin(), shares.stages.end());
  const double bubble = bubble_of(options).share;
  // Of what is idle the largest part that has a cause; messages mostly go on while ranks compute.
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
    cause = fmt::format("the pipeline's bubble, {}: {}", bubble_text(options), bubble_advice(options));
  } else {
    cause =
        "what comes between passes (messages, launches, ranks that share cores): a larger --microbatch-size, or "
        "fewer ranks on a machine";
  }
  return fmt::format("limited by {}; computing took {}", cause, percent(shares.computed));
}

}  // namespace ranvier::apps
