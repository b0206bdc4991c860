#include "apps/options/flag_groups.hpp"

#include "models/families/adapter_files.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

constexpr const char* valid_targets = "names separated by commas, such as q_proj,v_proj";

OptionBinding targets(std::vector<std::string>& field) {
  const auto read = [&field](const std::string& given) {
    field = models::parse_targets(given);
    return !field.empty();
  };
  return parsed(valid_targets, read, [&field] { return fmt::format("{}", fmt::join(field, ",")); });
}

/// Reads names as targets() does, or none as an empty list.
OptionBinding modules(std::vector<std::string>& field) {
  OptionBinding binding = or_word(field, "none", {}, targets(field), valid_targets);
  binding.words.clear();  // not completed
  return binding;
}

}  // namespace

void declare_tuning(TrainTable& table, ModelOptions& model) {
  const NoEffect no_adapters = unused_if([&model] { return !model.adapts(); }, "without --lora-rank");
  // Frozen parameters form separate units without optimizer states.
  table.add({Effect::shape, "train", "REGEX",
             "Train only the parameters whose Hugging Face name contains a match; freeze the others (no gradients, "
             "no optimizer states)",
             text(model.train), "all"});
  table.add({Effect::shape, "freeze", "REGEX", "Freeze the parameters whose Hugging Face name contains a match",
             text(model.freeze), "none"});
  table.add({Effect::shape, "lora-rank", "R",
             "Rank of LoRA adapters on a frozen model, saved in PEFT's format; 0 disables adapters",
             whole(model.lora.rank, 0, models::max_lora_rank)},
            {.also = "lora-r", .usual = true});
  table.add({Effect::decides, "lora-alpha", "X", "LoRA scaling: the adapters' output is multiplied by X / R",
             real(model.lora.alpha, 0, 1e6)},
            {.unused = no_adapters});
  table.add({Effect::decides, "lora-dropout", "RATE", "Dropout rate of the adapters' input",
             real(model.lora.dropout, 0, 1)},
            {.unused = no_adapters});
  table.add({Effect::shape, "lora-targets", "NAMES", "Modules that get adapters, by the last part of the name",
             targets(model.lora.targets),
             "q_proj,v_proj; for GPT-2 c_attn, for Phi-3 qkv_proj, for BERT and RoBERTa query,value"},
            {.also = "target-modules", .unused = no_adapters});
  table.add({Effect::shape, "lora-whole", "NAMES",
             "With --lora-rank: modules of a classification head to train in full and save with the adapters "
             "(PEFT's modules_to_save)",
             modules(model.lora.whole), "none; with --label-field classifier, for BERT classifier,pooler"},
            {.unused = no_adapters});
}

void resolve_tuning(TrainOptions& options) {
  models::LoraOptions& lora = options.model.lora;
  RunOptions& run = options.run;
  if (!run.init_adapter.empty()) {
    const models::LoraOptions stored = models::read_adapter_config(run.init_adapter);
    const models::LoraOptions asked = std::exchange(lora, stored);
    if ((options.is_given("lora-rank") && asked.rank != stored.rank) ||
        (options.is_given("lora-targets") && asked.targets != stored.targets) ||
        (options.is_given("lora-whole") && asked.whole != stored.whole))
      reject("--init-adapter {} has rank {} and targets {}{}; remove --lora-rank, --lora-targets and --lora-whole",
             run.init_adapter, stored.rank, fmt::join(stored.targets, ","),
             stored.whole.empty() ? std::string()
                                  : fmt::format(", and trains {} in full", fmt::join(stored.whole, ",")));
    if (options.is_given("lora-alpha")) lora.alpha = asked.alpha;
    if (options.is_given("lora-dropout")) lora.dropout = asked.dropout;
  }
  if (!options.model.adapts()) return;
  if (const auto modules = models::default_adapters(options.model.sizes); modules && run.init_adapter.empty()) {
    if (!options.is_given("lora-targets")) lora.targets = modules->targets;
    if (!options.is_given("lora-whole")) lora.whole = modules->whole;
  }
  if (lora.alpha == 0) reject("--lora-alpha 0 disables the adapters; use a value above 0");
  if (lora.dropout >= 1) reject("--lora-dropout {} drops everything; use a value below 1", lora.dropout);
  for (const char* flag : {"train", "freeze"}) {
    if (options.is_given(flag))
      reject("--{} has no effect with --lora-rank {}, which trains only adapters; remove one of the flags", flag,
             lora.rank);
  }
  if (run.save.empty()) return;
  const std::filesystem::path save = run.save;
  if (save.filename() == models::adapter_weights_name) return;
  if (models::has_weights_extension(save) && !std::filesystem::is_directory(save))
    reject("--save {} is a file, but adapters are saved in a folder; use a folder", run.save);
  run.save = (save / models::adapter_weights_name).string();
}

}  // namespace ranvier::apps
