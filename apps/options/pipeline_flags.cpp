#include "apps/options/flag_groups.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

using actors::Policy;

namespace {

constexpr int rebalance_steps = 5;
constexpr int max_chunks = 1 << 10;

OptionBinding recompute(int& interval, bool& automatic) {
  constexpr const char* valid = "a number of layers, auto or off";
  const OptionBinding layers = or_word(interval, "off", 0, whole(interval, 1, max_count), valid);
  return parsed(
      valid,
      [=, &interval, &automatic](const std::string& given) {
        automatic = given == "auto";
        interval = automatic ? 0 : interval;
        return automatic || !layers.read(given);
      },
      [=, &automatic] { return automatic ? std::string("auto") : layers.write(); }, {"auto", "off"});
}

/// Reads "7,7,6", or auto as an empty list.
OptionBinding layers_per_stage(std::vector<int>& field) {
  constexpr const char* valid = "a number of layers above 0 for each stage, as in 7,7,6, or auto";
  return or_word(
      field, "auto", {},
      list<int>(field, valid, [](const std::string& layers) { return parse_whole(layers, 1, max_count); }), valid);
}

/// Reads on as rebalance_steps and off as 0.
OptionBinding rebalance(int& steps) {
  return {.read = [&steps](const std::string& given) -> std::optional<std::string> {
            bool on = false;
            if (auto problem = switch_on(on).read(given)) return problem;
            steps = on ? rebalance_steps : 0;
            return {};
          },
          .write = [&steps] { return std::string(steps > 0 ? "on" : "off"); },
          .is_switch = true};
}

}  // namespace

void declare_pipeline(TrainTable& table, actors::TrainerOptions& trainer) {
  const auto one_stage = [&trainer] { return trainer.grid.g_inter == 1; };
  const auto defers = [&trainer] { return actors::defers_weights(trainer.policy); };
  std::vector<std::pair<std::string, Policy>> policies;
  for (const Policy policy : actors::all_policies) policies.emplace_back(to_string(policy), policy);
  const char* const no_bubble = "with one stage, which has no bubble to fill";
  table.add(
      {Effect::bits, "chunks-per-rank", "N",
       "Model chunks per rank (interleaved pipeline): 1/N of the bubble, N times the messages; not with zb-h1",
       whole(trainer.chunks_per_rank, 1, max_chunks)},
      {.also = "num-virtual-stages-per-pipeline-rank"});
  table.add({Effect::bits, "pipeline-limit", "N",
             "Largest number of microbatches in flight; 0: all with gpipe, what the schedule needs with "
             "--chunks-per-rank (per model chunk), otherwise --g-inter",
             whole(trainer.pipeline_limit, 0, max_count)});
  table.add({Effect::bits, "policy", "NAME",
             "Pipeline schedule: message-driven, 1f1b or gpipe; zero-bubble and zb-h1 also defer weight gradients "
             "(zb-h1 in a fixed order)",
             choice<Policy>(trainer.policy, std::move(policies))},
            {.usual = true,
             .plan = PlanRole::searched,
             .unused = unused_if(
                 [=, &trainer] { return one_stage() && (trainer.policy == Policy::one_f_one_b || defers()); },
                 "with one stage, where message-driven, 1f1b and zero-bubble schedules have the same order")});
  table.add({Effect::bits, "defer-weights", "",
             "Defer weight gradients with message-driven; same as --policy zero-bubble",
             switch_on(trainer.defer_weights)},
            {.unused = unused_if(one_stage, no_bubble)});
  table.add({Effect::bits, "deferred-limit", "N",
             "Largest number of microbatches with deferred weight gradients, per model chunk; 0 defers none; auto: "
             "s + 1 on stage s (the first is 0), s + 2 with several chunks, 1 with --recompute",
             or_word(trainer.deferred_limit, "auto", {}, whole(trainer.deferred_limit, 0, max_count),
                     "a number of microbatches, 0 for none, or auto")},
            {.unused = [=, &trainer]() -> std::string {
              if (one_stage()) return no_bubble;
              if (trainer.defer_weights || defers()) return {};
              return "without deferred weight gradients (--policy zero-bubble or zb-h1, or --defer-weights)";
            }});
  table.add({Effect::bits, "layers-per-stage", "N,N,…",
             "Layers per stage, embedding and head included; with several chunks per rank, per model chunk in the "
             "order of layers; auto balances computation",
             layers_per_stage(trainer.layers_per_stage), "auto"});
  table.add({Effect::run, "rebalance", "",
             fmt::format("Measure the layers for {} steps and print a faster --layers-per-stage", rebalance_steps),
             rebalance(trainer.rebalance_steps)},
            {.unused = [=, &trainer]() -> std::string {
              if (one_stage()) return "with one stage, which has all layers";
              return trainer.steps < 2 ? "with fewer than two steps, since the first one warms up" : "";
            }});
  table.add({Effect::bits, "recompute", "N",
             "Activation checkpointing: keep one activation per N layers and recompute the others; auto: the N "
             "that needs the least memory",
             recompute(trainer.recompute, trainer.recompute_auto)},
            {.also = "gradient-checkpointing=auto activation-checkpointing=auto checkpoint-activations=auto "
                     "recompute-activations=auto recompute-granularity",
             .usual = true,
             .plan = PlanRole::searched});
  using Saved = std::optional<models::SavedActivations>;
  // Bits differ only in half precision on a GPU.
  table.add({Effect::rounding, "saved-activations", "NAME",
             "Activations that blocks save for the backward pass: all; few: norms and activation functions are "
             "recomputed; auto: all on a GPU if they fit, otherwise few",
             choice<Saved>(trainer.saved_activations, {{"auto", Saved()},
                                                       {"few", models::SavedActivations::few},
                                                       {"all", models::SavedActivations::all}})});
}

}  // namespace ranvier::apps
