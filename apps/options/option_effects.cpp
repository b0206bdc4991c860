#include "apps/options/option_effects.hpp"

#include <boost/json/value.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ranvier::apps {
namespace {

/// Effects that a resumed run may have, in the order of its startup output.
constexpr std::pair<OptionEffect, const char*> accepted_effects[] = {
    {OptionEffect::decides, "results change, as --resume-with allows"},
    {OptionEffect::rounding, "results stay the same within rounding"},
    {OptionEffect::bits, "results stay bit-identical"},
    {OptionEffect::judges, "results stay bit-identical until a bad step"},
    {OptionEffect::tells, "results stay bit-identical; evaluation or text samples change"}};

std::string describe(const ChangedOption& change) {
  const auto value = [](const std::string& text) { return text.empty() ? std::string("nothing") : text; };
  return fmt::format("--{} {} (was {})", change.flag, value(change.now), value(change.before));
}

/// Empty if there is no such option.
std::string resolved_value(const std::vector<ResolvedOption>& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &ResolvedOption::name);
  return found == options.end() ? std::string() : found->value;
}

/// Whether both runs have a constant rate, so that --steps only sets the end.
bool constant_rate(const boost::json::object& saved, const std::vector<ResolvedOption>& options) {
  const boost::json::value* before = saved.if_contains("lr-decay");
  return before != nullptr && *before == "constant" && resolved_value(options, "lr-decay") == "constant";
}

/// Reports a changed computation as --model, which --resume-with can name.
void name_computation(std::vector<ChangedOption>& changes) {
  const auto named = [&](std::string_view flag) { return std::ranges::find(changes, flag, &ChangedOption::flag); };
  if (named(computation_option) == changes.end()) return;
  if (const auto model = named("model"); model != changes.end()) changes.erase(model);
  named(computation_option)->flag = "model";
}

/// Removes changed settings that the update rule does not read, or that follow from another rule.
void name_optimizer(std::vector<ChangedOption>& changes, const std::vector<ResolvedOption>& options) {
  const std::string rule = resolved_value(options, "optimizer");
  const bool is_other = std::ranges::find(changes, "optimizer", &ChangedOption::flag) != changes.end();
  std::erase_if(changes, [&](const ChangedOption& each) {
    if (each.flag == "momentum") return is_other || rule == "adamw";
    if (each.flag == "beta1" || each.flag == "beta2" || each.flag == "epsilon") return rule == "sgd";
    return each.flag == "muon-learning-rate" && (is_other || rule != "muon");
  });
}

/// Accepts other paths of the same data, and reports other data at the same path as changed --data.
void compare_content(std::vector<ChangedOption>& changes, const boost::json::object& saved,
                     const std::vector<ResolvedOption>& options) {
  if (!saved.contains(content_option) || resolved_value(options, content_option).empty()) return;
  const auto is_path = [](const ChangedOption& each) { return each.flag == "data" || each.flag == "tokenizer"; };
  const auto content = std::ranges::find(changes, content_option, &ChangedOption::flag);
  if (content == changes.end()) {
    for (ChangedOption& change : changes)
      if (is_path(change)) change.effect = OptionEffect::bits;
  } else if (std::ranges::any_of(changes, is_path)) {
    changes.erase(content);  // both flags are part of the content, so it differs with them
  } else {
    *content = {"data", "the same path with other content", resolved_value(options, "data"), OptionEffect::decides};
  }
}

}  // namespace

void TrainTable::add(TrainFlag flag, OptionTraits traits) {
  traits.effect = flag.effect;
  OptionTable::add(std::move(flag.option), std::move(traits));
}

boost::json::object options_to_save(const std::vector<ResolvedOption>& options) {
  boost::json::object saved;
  for (const ResolvedOption& option : options) {
    if (option.effect != OptionEffect::run) saved[option.name] = option.value;
  }
  return saved;
}

std::vector<ChangedOption> changed_options(const boost::json::object& saved,
                                           const std::vector<ResolvedOption>& options, bool learns_positions) {
  std::vector<ChangedOption> changes;
  for (const ResolvedOption& option : options) {
    OptionEffect effect = option.effect;
    // Values of options that older checkpoints lack.
    static const boost::json::object usual = {{special_tokens_option, "none"}, {"master-dtype", "fp32"},
                                              {"moment-dtype", "fp32"},        {"gather-dtype", "same"},
                                              {"reduce-dtype", "same"},        {"optimizer", "adamw"}};
    const boost::json::value* before = saved.if_contains(option.name);
    if (before == nullptr) before = usual.if_contains(option.name);
    if (effect == OptionEffect::run || before == nullptr || !before->is_string()) continue;
    if (before->get_string() == option.value) continue;
    if (option.name == "steps" && constant_rate(saved, options)) effect = OptionEffect::bits;
    if (option.name == "sequence-length" && !learns_positions) effect = OptionEffect::decides;
    changes.push_back({option.name, std::string(before->get_string()), option.value, effect});
  }
  compare_content(changes, saved, options);
  name_computation(changes);
  name_optimizer(changes, options);
  return changes;
}

bool are_moments_new(const std::vector<ChangedOption>& changes, const std::vector<ResolvedOption>& options) {
  const bool is_sgd = resolved_value(options, "optimizer") == "sgd";
  return std::ranges::any_of(changes, [&](const ChangedOption& change) {
    const auto is_zero = [](const std::string& number) { return std::strtod(number.c_str(), nullptr) == 0; };
    if (change.flag == "momentum") return is_sgd && is_zero(change.before) != is_zero(change.now);
    return change.flag == "optimizer";
  });
}

std::vector<std::string> accept_changes(const std::vector<ChangedOption>& changes,
                                        const std::vector<std::string>& meant, const std::string& checkpoint) {
  std::vector<std::string> other_sizes, refused, missing;
  for (const ChangedOption& change : changes) {
    if (change.effect == OptionEffect::shape) other_sizes.push_back(describe(change));
    const bool is_meant = std::ranges::find(meant, change.flag) != meant.end();
    if (change.effect != OptionEffect::decides || is_meant) continue;
    refused.push_back(describe(change));
    missing.push_back(change.flag);
  }
  if (!other_sizes.empty())
    reject(
        "{} has model states of other sizes: {}; use the checkpoint's values, or start from scratch in another "
        "--checkpoint",
        checkpoint, fmt::join(other_sizes, ", "));
  if (!refused.empty()) {
    for (const std::string& flag : meant) missing.push_back(flag);
    reject(
        "{} was taken with other settings: {}; use the checkpoint's values, or add --resume-with {} if the "
        "change is intended",
        checkpoint, fmt::join(refused, ", "), fmt::join(missing, ","));
  }
  std::vector<std::string> lines;
  for (const auto& [effect, words] : accepted_effects) {
    std::vector<std::string> alike;
    for (const ChangedOption& change : changes) {
      if (change.effect == effect) alike.push_back(describe(change));
    }
    if (!alike.empty()) lines.push_back(fmt::format("{}: {}", fmt::join(alike, ", "), words));
  }
  for (const std::string& flag : meant) {
    if (std::ranges::none_of(changes, [&](const ChangedOption& each) { return each.flag == flag; }))
      lines.push_back(fmt::format("--resume-with {} has no effect: --{} has the checkpoint's value", flag, flag));
  }
  return lines;
}

}  // namespace ranvier::apps
