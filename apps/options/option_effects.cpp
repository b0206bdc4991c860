#include "apps/options/option_effects.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ranvier::apps {
namespace {

struct Entry {
  std::string_view flag;
  OptionEffect effect;
};

std::span<const Entry> entries() {
  using enum OptionEffect;
  static constexpr std::array all{
      // Model. A preset stands for sizes and the computation, which are compared on their own.
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
      // Frozen parameters form separate units without optimizer states.
      Entry{"train", shape},
      Entry{"freeze", shape},
      Entry{"lora-rank", shape},
      Entry{"lora-alpha", decides},
      Entry{"lora-dropout", decides},
      Entry{"lora-targets", shape},
      Entry{"lora-whole", shape},
      // Grid and sharding. Algorithm, rows and nodes set the order of sums over rows; gathers do not add.
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
      Entry{"saved-activations", rounding},  // bits differ only in half precision on a GPU
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
      // Bad steps and replica mismatches. No effect on results unless one occurs.
      Entry{"bad-steps", judges},
      Entry{"bad-steps-limit", judges},
      Entry{"spike-factor", judges},
      Entry{"check-every", bits},
      // Precision. The checkpoint has the current loss scale.
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
      // Memory tiers. Tiles are separate units in checkpoints.
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
      // Planning. The flags that it chooses are compared on their own.
      Entry{"plan", run},
      Entry{"profile", run},
      // Run. Weights come from the checkpoint.
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
      return "results stay bit-identical";
    case OptionEffect::judges:
      return "results stay bit-identical until a bad step";
    case OptionEffect::rounding:
      return "results stay the same within rounding";
    case OptionEffect::tells:
      return "results stay bit-identical; evaluation or text samples change";
    case OptionEffect::decides:
      return "results change, as --resume-with allows";
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

/// Whether both runs have a constant rate, so that --steps only sets the end.
bool constant_rate(const boost::json::object& saved, const std::vector<ResolvedOption>& options) {
  const boost::json::value* before = saved.if_contains("lr-decay");
  const auto now = std::find_if(options.begin(), options.end(),
                                [](const ResolvedOption& each) { return each.name == "lr-decay"; });
  return before != nullptr && *before == "constant" && now != options.end() && now->value == "constant";
}

/// Reports a changed computation as --model, which --resume-with can name.
void name_computation(std::vector<ChangedOption>& changes) {
  const auto named = [&](std::string_view flag) {
    return std::find_if(changes.begin(), changes.end(),
                        [&](const ChangedOption& each) { return each.flag == flag; });
  };
  if (named(computation_option) == changes.end()) return;
  if (const auto model = named("model"); model != changes.end()) changes.erase(model);
  named(computation_option)->flag = "model";
}

/// Accepts other paths of the same data, and reports other data at the same path as changed --data.
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
  // Both flags are part of the content, so the content differs with them.
  const bool elsewhere = std::any_of(changes.begin(), changes.end(), [](const ChangedOption& each) {
    return each.flag == "data" || each.flag == "tokenizer";
  });
  if (elsewhere) {
    changes.erase(content);
  } else {
    const std::string path = value_of("data");
    *content = {"data", "the same path with other content", path, OptionEffect::decides};
  }
}

}  // namespace

OptionEffect effect_of(std::string_view flag) {
  const auto all = entries();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Entry& entry) { return entry.flag == flag; });
  expect(found != all.end(), "--{} has no entry in option_effects.cpp", flag);
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
         "{} has model states of other sizes: {}; use the checkpoint's values, or start from scratch in another "
         "--checkpoint",
         checkpoint, fmt::join(other_sizes, ", "));
  if (!refused.empty()) {
    for (const std::string& flag : meant) missing.push_back(flag);
    fail(ErrorCode::usage,
         "{} was taken with other settings: {}; use the checkpoint's values, or add --resume-with {} if the "
         "change is intended",
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
      lines.push_back(fmt::format("--resume-with {} has no effect: --{} has the checkpoint's value", flag, flag));
  }
  return lines;
}

}  // namespace ranvier::apps
