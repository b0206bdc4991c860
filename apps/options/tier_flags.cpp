#include "apps/options/flag_groups.hpp"

#include "actors/rank/rank_plan.hpp"

#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <ranges>
#include <utility>

namespace ranvier::apps {
namespace {

using actors::TierKind;
using actors::TierOptions;

OptionBinding tier(TierKind& field) {
  return choice<TierKind>(field,
                          {{"device", TierKind::device}, {"host", TierKind::host}, {"nvme", TierKind::nvme}});
}

/// A preset of tiers by the name in its paper. `activations` applies only to activation checkpoints.
struct Offload {
  std::string_view name;
  TierKind parameters = TierKind::device;
  TierKind gradients = TierKind::device;
  TierKind optimizer = TierKind::device;
  TierKind activations = TierKind::device;
};

/// Myelin §V-B; ZeRO-Infinity Table 2, with activation checkpoints in host memory (§5.1.2).
std::span<const Offload> offloads() {
  using enum TierKind;
  static constexpr std::array all{
      Offload{.name = "none"},
      Offload{.name = "myelin", .optimizer = host},
      Offload{.name = "zero-offload", .gradients = host, .optimizer = host},
      Offload{
          .name = "infinity-cpu", .parameters = host, .gradients = host, .optimizer = host, .activations = host},
      Offload{
          .name = "infinity-nvme", .parameters = nvme, .gradients = nvme, .optimizer = nvme, .activations = host},
  };
  return all;
}

/// Sets all tiers; declared before the flags that override them.
OptionBinding all_tiers(TierOptions& field, std::string& chosen) {
  return {.read = [&field, &chosen](const std::string& name) -> std::optional<std::string> {
            if (set_offload(field, chosen, name)) return {};
            return fmt::format("one of {}", fmt::join(offload_names(), ", "));
          },
          .write = [&chosen] { return chosen; },
          .words = offload_names()};
}

OptionBinding directories(std::vector<std::filesystem::path>& field) {
  return {.read = [&field](const std::string& given) -> std::optional<std::string> {
            field.clear();
            for (std::string& directory : items_of(given))
              if (!directory.empty()) field.emplace_back(std::move(directory));
            return {};
          },
          .write = [&field] { return paths_text(field); }};
}

}  // namespace

std::vector<std::string> offload_names() {
  std::vector<std::string> names;
  for (const Offload& known : offloads()) names.emplace_back(known.name);
  return names;
}

bool set_offload(TierOptions& tiers, std::string& offload, std::string_view name) {
  for (const Offload& known : offloads()) {
    if (known.name != name) continue;
    offload = name;
    tiers.parameters = known.parameters;
    tiers.gradients = known.gradients;
    tiers.optimizer = known.optimizer;
    tiers.activations = known.activations;
    return true;
  }
  return false;
}

void declare_tiers(TrainTable& table, actors::TrainerOptions& trainer, std::string& offload) {
  TierOptions& tiers = trainer.tiers;
  table.concern("Memory tiers");
  table.add(
      {Effect::bits, "offload", "NAME",
       "Set all tier flags (--optimizer-tier and others) at once. myelin: optimizer states to host memory; "
       "zero-offload: also gradients; infinity-cpu: also parameters and activation checkpoints; infinity-nvme: "
       "activation checkpoints to host memory, the rest to files (--nvme)",
       all_tiers(tiers, offload)},
      {.also = "cpu-offload", .usual = true, .plan = PlanRole::searched});
  table.add({Effect::bits, "optimizer-tier", "NAME", "Tier of optimizer states: device, host or nvme",
             tier(tiers.optimizer)},
            {.also = "offload-optimizer=host", .fixes = "offload"});
  table.add(
      {Effect::bits, "optimizer-budget", "SIZE",
       "Device memory per rank for optimizer states of an --optimizer-tier off the device: the first units whose "
       "states fit keep them on the device; 0: none",
       or_word(tiers.optimizer_budget, "0", 0, bytes(tiers.optimizer_budget),
               "0, or a size such as 512MiB, 1.5GiB or a number of bytes")},
      {.plan = PlanRole::searched,
       .unused = unused_if([&tiers] { return tiers.optimizer == TierKind::device; },
                           "if all optimizer states are on the device; add --optimizer-tier host")});
  table.add({Effect::bits, "parameter-tier", "NAME", "Tier of parameters between their uses: device, host or nvme",
             tier(tiers.parameters)},
            {.also = "offload-param=host", .fixes = "offload"});
  table.add({Effect::bits, "parameter-tier-trained", "NAME",
             "With frozen parameters: tier of the trained ones: device, host or nvme",
             choice<std::optional<TierKind>>(tiers.trained_parameters, {{"device", TierKind::device},
                                                                        {"host", TierKind::host},
                                                                        {"nvme", TierKind::nvme},
                                                                        {"same", std::nullopt}}),
             "same as --parameter-tier"},
            {.fixes = "offload"});
  table.add({Effect::bits, "secondary-tier", "NAME",
             "With --shard zero++: tier of the second copy of parameters: device or host",
             choice<std::optional<TierKind>>(
                 tiers.secondary, {{"device", TierKind::device}, {"host", TierKind::host}, {"same", std::nullopt}}),
             "same as --parameter-tier"},
            {.plan = PlanRole::searched,
             .unused = unused_if(
                 [&trainer] {
                   const auto [frozen, trained] = trainer.shardings();
                   return !frozen.secondary_parameters && !trained.secondary_parameters;
                 },
                 "without --shard zero++")});
  table.add({Effect::bits, "gradient-tier", "NAME", "Tier of accumulated gradients: device, host or nvme",
             tier(tiers.gradients)},
            {.fixes = "offload"});
  table.add({Effect::bits, "activation-tier", "NAME",
             "Tier of activation checkpoints (--recompute) between passes: device, host or nvme",
             tier(tiers.activations)},
            {.fixes = "offload"});
  table.add({Effect::bits, "nvme", "DIR[,DIR]", "Directories for states in files, one per disk",
             directories(tiers.files.directories)},
            {.usual = true});
  table.add({Effect::bits, "nvme-checksums", "on|off", "Verify states that are read back from files",
             toggle(tiers.files.checksums)},
            {.unused = unused_if([&tiers] { return tiers.files.directories.empty(); },
                                 "without states in files (--nvme)")});
  table.add(
      {Effect::bits, "bucket-size", "N",
       "Elements per optimizer bucket, the unit of transfer and update of offloaded states; at least 512 per shard",
       whole(tiers.bucket_elements, 1, max_count)});
  table.add({Effect::bits, "chunk-buckets", "N",
             "Optimizer buckets per gradient chunk, which is reduced as one operation; or all",
             or_word(tiers.chunk_buckets, "all", 0, whole(tiers.chunk_buckets, 1, max_count),
                     "a number of buckets, or all")});
  table.add({Effect::bits, "optimizer-step", "NAME",
             "Processor of the optimizer step for states off the device: device or host",
             choice<actors::StepLocation>(
                 tiers.step, {{"device", actors::StepLocation::device}, {"host", actors::StepLocation::host}})});
  table.add(
      {Effect::bits, "optimizer-commit", "NAME",
       "For states off the device: wait for the global gradient norm, or flip: update spare copies first, and "
       "commit them if the step is neither clipped nor skipped (doubles the tier's memory)",
       choice<actors::Commit>(tiers.commit, {{"wait", actors::Commit::wait}, {"flip", actors::Commit::flip}})},
      {.unused = unused_if(
           [&trainer] {
             return actors::every_step_counts(trainer) && trainer.tiers.commit == actors::Commit::flip;
           },
           "with --clip 0, since no step waits for a decision of all ranks")});
}

void resolve_tiers(TrainOptions& options) {
  TierOptions& tiers = options.trainer.tiers;
  const bool checkpoints = options.trainer.recompute > 0 || options.trainer.recompute_auto;
  if (!checkpoints && !options.is_given("activation-tier")) tiers.activations = TierKind::device;
  if (options.trainer.precision.compute == runtime::DType::f32 && tiers.master != runtime::DType::f32 &&
      tiers.parameters_of(true) == TierKind::device && !options.data.eval_only)
    reject(
        "--master-dtype bf16 adds a second copy of the weights in fp32; use --precision bf16, remove it, or add "
        "--parameter-tier host");
  bool files = false;
  const TierKind trained = tiers.trained_parameters.value_or(TierKind::device);
  for (const auto& [flag, kind] : {std::pair{"parameter-tier", tiers.parameters},
                                   {"parameter-tier-trained", trained},
                                   {"gradient-tier", tiers.gradients},
                                   {"optimizer-tier", tiers.optimizer},
                                   {"activation-tier", tiers.activations}}) {
    if (kind != TierKind::nvme) continue;
    files = true;
    if (tiers.files.directories.empty())
      reject("{} needs directories; add --nvme DIR, one per disk",
             options.is_given(flag) ? fmt::format("--{} nvme", flag) : "--offload " + options.offload);
  }
  if (tiers.step == actors::StepLocation::host && tiers.optimizer == TierKind::device)
    reject("--optimizer-step host needs optimizer states off the device; add --optimizer-tier host");
  if (!files && !tiers.files.directories.empty())
    reject("--nvme {} has no effect without states in files; add --optimizer-tier nvme",
           paths_text(tiers.files.directories));
}

std::string paths_text(std::span<const std::filesystem::path> paths) {
  const auto texts = paths | std::views::transform([](const auto& path) { return path.string(); });
  return fmt::format("{}", fmt::join(texts, ","));
}

}  // namespace ranvier::apps
