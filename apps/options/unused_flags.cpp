#include "apps/options/unused_flags.hpp"

#include "actors/rank/rank_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace ranvier::apps {

namespace {

/// Flags that have no effect if `unused`, with the reason.
struct Rule {
  bool unused;
  std::initializer_list<std::string_view> flags;
  std::string_view why;
};

std::string value_of(const std::vector<ResolvedOption>& all, std::string_view flag) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& option) { return option.name == flag; });
  return found == all.end() || found->value.empty() ? std::string() : " " + found->value;
}

}  // namespace

std::vector<std::string> unused_flags(const TrainOptions& options, const OptionTable& table) {
  const bool one_row = options.trainer.grid.g_data == 1;
  const bool one_stage = options.trainer.grid.g_inter == 1;
  const auto& trainer = options.trainer;
  const auto [frozen, trained] = trainer.shardings();
  const bool whole =
      one_row || (frozen.parameters == collectives::Scope::none && trained.parameters == collectives::Scope::none);
  const auto& tiers = trainer.tiers;
  const auto on_device = [](actors::TierKind kind) { return kind == actors::TierKind::device; };
  const bool all_on_device = !tiers.parameters_leave() && on_device(tiers.gradients) &&
                             on_device(tiers.optimizer) && on_device(tiers.activations);
  const CheckpointOptions& checkpoint = options.checkpoint;
  const bool gpu = options.device.device == DeviceFlag::cuda;
  const Rule rules[] = {
      {trainer.learning_rate.decay == actors::LearningRateOptions::Decay::constant,
       {"min-learning-rate"},
       "with --lr-decay constant"},
      {!options.model.adapts(),
       {"lora-alpha", "lora-dropout", "lora-targets", "lora-whole"},
       "without --lora-rank"},
      {trainer.sample.every == 0, {"sample-prompt", "sample-tokens"}, "without --sample-every"},
      {options.data.gpt2.empty(), {"special-tokens"}, "without --tokenizer PATH"},
      {!models::fills_masks(options.model.sizes),
       {"mlm-probability", "mask-token"},
       "unless the model is trained to fill masks"},
      {one_row,
       {"shard", "shard-trained", "group-size", "links", "all-gather", "reduce-scatter", "all-reduce"},
       "with one row (--g-data 1)"},
      {whole && all_on_device,
       {"prefetch", "reuse"},
       "if all states stay on the device and no parameters are gathered"},
      {one_stage && (trainer.policy == actors::Policy::one_f_one_b || actors::defers_weights(trainer.policy)),
       {"policy"},
       "with one stage, where message-driven, 1f1b and zero-bubble schedules have the same order"},
      {one_stage, {"rebalance"}, "with one stage, which has all layers"},
      {!one_stage && trainer.steps < 2, {"rebalance"}, "with fewer than two steps, since the first one warms up"},
      {one_stage, {"defer-weights", "deferred-limit"}, "with one stage, which has no bubble to fill"},
      {!one_stage && !trainer.defer_weights && !actors::defers_weights(trainer.policy),
       {"deferred-limit"},
       "without deferred weight gradients (--policy zero-bubble or zb-h1, or --defer-weights)"},
      {tiers.files.directories.empty(), {"nvme-checksums"}, "without states in files (--nvme)"},
      {actors::every_step_counts(trainer) && tiers.commit == actors::Commit::flip,
       {"optimizer-commit"},
       "with --clip 0, since no step waits for a decision of all ranks"},
      {trainer.bad_steps.action == actors::BadStepOptions::Action::stop,
       {"bad-steps-limit"},
       "with --bad-steps stop, which ends the job at the first bad step"},
      {options.ranks == 1, {"check-every"}, "with one rank, whose states have no replicas"},
      {checkpoint.folder.empty(),
       {"checkpoint-every", "checkpoint-keep", "checkpoint-archive-every", "checkpoint-rate"},
       "without --checkpoint"},
      {!checkpoint.resumes(), {"resume-with"}, "without --resume"},
      {!checkpoint.time_limit, {"stop-before"}, "without --time-limit"},
      {!gpu, {"p2p", "collectives", "products", "attention", "cuda-graphs"}, "without a GPU (--device cuda)"},
      {gpu, {"threads"}, "on a GPU"},
  };
  std::vector<ResolvedOption> values;  // resolved for the first note; most runs have none
  std::vector<std::string> notes;
  for (const Rule& rule : rules) {
    if (!rule.unused) continue;
    for (const std::string_view flag : rule.flags) {
      if (!table.given(flag)) continue;
      if (values.empty()) values = table.resolved();
      notes.push_back(fmt::format("--{}{} has no effect {}", flag, value_of(values, flag), rule.why));
    }
  }
  // The rate has an effect, but never reaches --learning-rate.
  const auto warmup = trainer.learning_rate.warmup_steps;
  if (warmup > trainer.steps) {
    notes.push_back(
        fmt::format("--warmup-steps {} exceeds --steps {}: the learning rate reaches {:.3g} instead of {:.3g}",
                    warmup, trainer.steps,
                    trainer.learning_rate.peak * static_cast<double>(trainer.steps) / static_cast<double>(warmup),
                    trainer.learning_rate.peak));
  }
  return notes;
}

}  // namespace ranvier::apps
