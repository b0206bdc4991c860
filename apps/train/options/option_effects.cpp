#include "apps/train/options/option_effects.hpp"

#include "runtime/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ranvier::apps {
namespace {

using runtime::ResolvedOption;

struct Entry {
  std::string_view flag;
  OptionEffect effect;
};

std::span<const Entry> entries() {
  using enum OptionEffect;
  static constexpr std::array all{
      // Model. The name of a preset stands for sizes and for how it computes, which are compared themselves.
      Entry{computation_option, decides},
      Entry{"model", bits},
      Entry{"layers", shape},
      Entry{"hidden", shape},
      Entry{"heads", decides},
      Entry{"kv-heads", shape},
      Entry{"head-size", shape},
      Entry{"ffn-size", shape},
      Entry{"window", decides},
      Entry{"vocab-size", shape},
      Entry{"sequence-length", shape},
      Entry{"blocks", shape},
      Entry{"width", shape},
      Entry{"image-size", shape},
      Entry{"classes", shape},
      Entry{"dropout", decides},
      // What is frozen is in units of its own, without optimizer states.
      Entry{"train", shape},
      Entry{"freeze", shape},
      Entry{"lora-rank", shape},
      Entry{"lora-alpha", decides},
      Entry{"lora-dropout", decides},
      Entry{"lora-targets", shape},
      Entry{"lora-whole", shape},
      // Grid and sharding. Sums over rows have the order of the algorithm, the rows and the nodes; gathers add nothing.
      Entry{"g-inter", bits},
      Entry{"g-data", rounding},
      Entry{"shard", rounding},
      Entry{"shard-trained", rounding},
      Entry{"group-size", rounding},
      Entry{"node-size", rounding},
      Entry{"links", rounding},
      Entry{"links' figures", rounding},
      Entry{"all-gather", bits},
      Entry{"reduce-scatter", rounding},
      Entry{"all-reduce", rounding},
      Entry{"prefetch", bits},
      Entry{"reuse", bits},
      // Batch.
      Entry{"batch-size", decides},
      Entry{"microbatch-size", rounding},
      Entry{"chunks-per-rank", bits},
      Entry{"pipeline-limit", bits},
      Entry{"policy", bits},
      Entry{"defer-weights", bits},
      Entry{"deferred-limit", bits},
      Entry{"layers-per-stage", bits},
      Entry{"rebalance", run},
      Entry{"recompute", bits},
      Entry{"saved-activations", rounding},  // other bits in half precision on a GPU alone
      // Data.
      Entry{content_option, decides},
      Entry{"data", decides},
      Entry{"tokenizer", decides},
      Entry{"token-format", decides},
      Entry{special_tokens_option, decides},
      Entry{"json-field", decides},
      Entry{"mlm-probability", decides},
      Entry{"mask-token", decides},
      Entry{"prompt-field", decides},
      Entry{"label-field", decides},
      Entry{"documents", decides},
      Entry{"document-end", decides},
      Entry{"shuffle", decides},
      Entry{"augment", decides},
      Entry{"validation-split", decides},
      Entry{"eval-every", tells},
      Entry{"eval-samples", tells},
      Entry{"eval-only", run},
      Entry{"hellaswag", tells},
      Entry{"sample-every", tells},
      Entry{"sample-prompt", tells},
      Entry{"sample-tokens", tells},
      // Optimizer.
      Entry{"steps", decides},
      Entry{"learning-rate", decides},
      Entry{"warmup-steps", decides},
      Entry{"lr-decay", decides},
      Entry{"min-learning-rate", decides},
      Entry{"beta1", decides},
      Entry{"beta2", decides},
      Entry{"epsilon", decides},
      Entry{"weight-decay", decides},
      Entry{"clip", decides},
      Entry{"seed", decides},
      // Bad steps and damage: what becomes of them, which a training that has none never asks.
      Entry{"bad-steps", judges},
      Entry{"bad-steps-limit", judges},
      Entry{"spike-factor", judges},
      Entry{"check-every", bits},
      // Precision. The loss scale of the checkpoint goes on, whatever the first one was.
      Entry{"precision", decides},
      Entry{"gradient-dtype", decides},
      Entry{"loss-scale", run},
      // Device.
      Entry{"device", rounding},
      Entry{"p2p", bits},
      Entry{"collectives", rounding},
      Entry{"products", rounding},
      Entry{"products-file", rounding},
      Entry{"attention", rounding},
      Entry{"attention-backward", rounding},
      Entry{"cuda-graphs", bits},
      Entry{"device-memory", bits},
      Entry{"threads", rounding},
      // Memory tiers. Tiles are units of their own, which checkpoints keep apart.
      Entry{"offload", bits},
      Entry{"optimizer-tier", bits},
      Entry{"parameter-tier", bits},
      Entry{"parameter-tier-trained", bits},
      Entry{"gradient-tier", bits},
      Entry{"activation-tier", bits},
      Entry{"nvme", bits},
      Entry{"nvme-checksums", bits},
      Entry{"bucket-size", bits},
      Entry{"chunk-buckets", bits},
      Entry{"optimizer-step", bits},
      Entry{"optimizer-commit", bits},
      Entry{"tile", shape},
      // Stopping and resuming.
      Entry{"checkpoint", run},
      Entry{"checkpoint-every", run},
      Entry{"checkpoint-keep", run},
      Entry{"checkpoint-archive-every", run},
      Entry{"checkpoint-rate", run},
      Entry{"resume", run},
      Entry{"resume-with", run},
      Entry{"time-limit", run},
      Entry{"stop-before", run},
      // Planning. What it chooses is compared by itself.
      Entry{"plan", run},
      Entry{"profile", run},
      // Run. The weights are the checkpoint's.
      Entry{"init-from", run},
      Entry{"ignore-tensors", run},
      Entry{"init-adapter", run},
      Entry{"save", run},
      Entry{"save-every", run},
      Entry{"save-file-size", run},
      Entry{"metrics", run},
      Entry{"trace", run},
      Entry{"serve", run},
      Entry{"tensorboard", run},
      Entry{"log-every", run},
      Entry{"quiet", run},
      Entry{"overwrite", run},
      Entry{"timeout", run},
      Entry{"separate-ranks", run},
      Entry{"config", run},
      Entry{"dry-run", run},
      Entry{"world", run},
  };
  return all;
}

const char* words(OptionEffect effect) {
  switch (effect) {
    case OptionEffect::bits:
      return "the same training to the bit";
    case OptionEffect::judges:
      return "the same training to the bit, until a step is bad";
    case OptionEffect::rounding:
      return "the same training within rounding";
    case OptionEffect::tells:
      return "the same training, told in another way";
    case OptionEffect::decides:
      return "another training, as --resume-with says";
    case OptionEffect::shape:
    case OptionEffect::run:
      break;
  }
  return "";
}

std::string describe(const ChangedOption& change) {
  const auto value = [](const std::string& text) { return text.empty() ? std::string("nothing") : text; };
  return fmt::format("--{} {} (was {})", change.flag, value(change.now), value(change.before));
}

bool is_meant(const ChangedOption& change, const std::vector<std::string>& meant) {
  return std::find(meant.begin(), meant.end(), change.flag) != meant.end();
}

/// Where the learning rate does not fall, the number of steps decides nothing but the end.
bool constant_rate(const boost::json::object& saved, const std::vector<ResolvedOption>& options) {
  const boost::json::value* before = saved.if_contains("lr-decay");
  const auto now = std::find_if(options.begin(), options.end(),
                                [](const ResolvedOption& each) { return each.name == "lr-decay"; });
  return before != nullptr && *before == "constant" && now != options.end() && now->value == "constant";
}

/// What --resume-with can name is the model.
void name_computation(std::vector<ChangedOption>& changes) {
  const auto named = [&](std::string_view flag) {
    return std::find_if(changes.begin(), changes.end(),
                        [&](const ChangedOption& each) { return each.flag == flag; });
  };
  if (named(computation_option) == changes.end()) return;
  if (const auto model = named("model"); model != changes.end()) changes.erase(model);
  named(computation_option)->flag = "model";
}

/// Paths of the same data harm nothing, and other data at the same path are other --data.
void compare_content(std::vector<ChangedOption>& changes, const boost::json::object& saved,
                     const std::vector<ResolvedOption>& options) {
  const auto value_of = [&](std::string_view name) -> std::string {
    const auto found =
        std::find_if(options.begin(), options.end(), [&](const ResolvedOption& each) { return each.name == name; });
    return found == options.end() ? std::string() : found->value;
  };
  const boost::json::value* before = saved.if_contains(content_option);
  if (before == nullptr || value_of(content_option).empty()) return;
  const auto content = std::find_if(changes.begin(), changes.end(),
                                    [](const ChangedOption& each) { return each.flag == content_option; });
  if (content == changes.end()) {
    for (ChangedOption& change : changes) {
      for (const char* flag : {"data", "tokenizer"})
        if (change.flag == flag) change.effect = OptionEffect::bits;
    }
    return;
  }
  // Each is part of the content.
  const bool elsewhere = std::any_of(changes.begin(), changes.end(), [](const ChangedOption& each) {
    return each.flag == "data" || each.flag == "tokenizer";
  });
  if (elsewhere) {
    changes.erase(content);
  } else {
    const std::string path = value_of("data");
    *content = {"data", "the same name with other content", path, OptionEffect::decides};
  }
}

}  // namespace

OptionEffect effect_of(std::string_view flag) {
  const auto all = entries();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Entry& entry) { return entry.flag == flag; });
  expect(found != all.end(), "nothing says what another --{} means for a training that goes on", flag);
  return found->effect;
}

boost::json::object options_to_save(const std::vector<ResolvedOption>& options) {
  boost::json::object saved;
  for (const ResolvedOption& option : options) {
    if (effect_of(option.name) != OptionEffect::run) saved[option.name] = option.value;
  }
  return saved;
}

std::vector<ChangedOption> changed_options(const boost::json::object& saved,
                                           const std::vector<ResolvedOption>& options, bool learns_positions) {
  std::vector<ChangedOption> changes;
  for (const ResolvedOption& option : options) {
    OptionEffect effect = effect_of(option.name);
    static const boost::json::value no_special_tokens = "none";
    const boost::json::value* before = saved.if_contains(option.name);
    if (before == nullptr && option.name == special_tokens_option) before = &no_special_tokens;
    if (effect == OptionEffect::run || before == nullptr || !before->is_string()) continue;
    if (before->get_string() == option.value) continue;
    if (option.name == "steps" && constant_rate(saved, options)) effect = OptionEffect::bits;
    if (option.name == "sequence-length" && !learns_positions) effect = OptionEffect::decides;
    changes.push_back({option.name, std::string(before->get_string()), option.value, effect});
  }
  compare_content(changes, saved, options);
  name_computation(changes);
  return changes;
}

std::vector<std::string> accept_changes(const std::vector<ChangedOption>& changes,
                                        const std::vector<std::string>& meant, const std::string& checkpoint) {
  std::vector<std::string> other_sizes, refused, missing;
  for (const ChangedOption& change : changes) {
    if (change.effect == OptionEffect::shape) other_sizes.push_back(describe(change));
    if (change.effect != OptionEffect::decides || is_meant(change, meant)) continue;
    refused.push_back(describe(change));
    missing.push_back(change.flag);
  }
  if (!other_sizes.empty())
    fail(ErrorCode::usage,
         "{} has states of another model: {}: give the values of the checkpoint, or begin anew in another "
         "--checkpoint",
         checkpoint, fmt::join(other_sizes, ", "));
  if (!refused.empty()) {
    for (const std::string& flag : meant) missing.push_back(flag);
    fail(ErrorCode::usage,
         "{} is of another training: {}: give the values of the checkpoint, or, where the change is meant, add "
         "--resume-with {}",
         checkpoint, fmt::join(refused, ", "), fmt::join(missing, ","));
  }
  std::vector<std::string> lines;
  for (const OptionEffect effect : {OptionEffect::decides, OptionEffect::rounding, OptionEffect::bits,
                                    OptionEffect::judges, OptionEffect::tells}) {
    std::vector<std::string> alike;
    for (const ChangedOption& change : changes) {
      if (change.effect == effect) alike.push_back(describe(change));
    }
    if (!alike.empty()) lines.push_back(fmt::format("{}: {}", fmt::join(alike, ", "), words(effect)));
  }
  for (const std::string& flag : meant) {
    if (std::none_of(changes.begin(), changes.end(), [&](const ChangedOption& each) { return each.flag == flag; }))
      lines.push_back(
          fmt::format("--resume-with {} has no effect, since --{} has the value of the checkpoint", flag, flag));
  }
  return lines;
}

}  // namespace ranvier::apps
