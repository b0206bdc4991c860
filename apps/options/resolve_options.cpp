#include "actors/checkpoint/snapshot.hpp"
#include "apps/options/collectives_choice.hpp"
#include "apps/options/flag_groups.hpp"
#include "apps/options/initial_weights.hpp"
#include "apps/options/train_options.hpp"
#include "runtime/base/arithmetic.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

using actors::Policy;
using actors::UpdateRule;
using BadAction = actors::BadStepOptions::Action;

constexpr int default_batch_size = 16;
constexpr int default_microbatch_size = 4;

std::string families_with(models::Size which) {
  std::vector<std::string_view> names;
  for (const models::NamedModel& each : models::named_models()) {
    models::ModelSizes sizes = *models::named_model(each.name);
    if (!each.is_preset && models::find_size(sizes, which) != nullptr) names.push_back(each.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void expect_sizes_of_model(const ModelOptions& model) {
  for (const auto& [which, flag] : models::named_sizes())
    if (const auto other = model.other_sizes.find(which); other != model.other_sizes.end())
      reject("--{0} {1}: --model {2} has no such size; remove --{0}, or use --model {3}", flag, other->second,
             model.name, families_with(which));
}

void check_model(const ModelOptions& model, const runtime::GridShape& grid) {
  if (const auto problem = models::size_problem(model.sizes)) reject("{}", *problem);
  const int layers = models::layers_of(model.sizes);
  if (grid.g_inter > layers)
    reject("--g-inter {} is more stages than {} {}; use at most one stage per layer", grid.g_inter,
           models::reads_images(model.sizes) ? "the model's layers," : "--layers", layers);
}

/// Keeps the checkpoint's value of a flag whose default follows from other flags.
void keep_recorded(const RunDefaults& run_defaults, const TrainOptions& options, const std::string& flag,
                   const OptionBinding& field) {
  const auto recorded = run_defaults.recorded.find(flag);
  if (options.is_given(flag) || recorded == run_defaults.recorded.end()) return;
  if (field.write() != recorded->second) static_cast<void>(field.read(recorded->second));  // keeps exact values
}

void resolve_batch(TrainOptions& options, const RunDefaults& run_defaults) {
  actors::TrainerOptions& trainer = options.trainer;
  const auto& [g_inter, g_data] = trainer.grid;
  if (!options.is_given("batch-size")) trainer.batch_size = runtime::round_up(default_batch_size, g_data);
  keep_recorded(run_defaults, options, "batch-size", whole(trainer.batch_size, 1));
  if (const auto problem = runtime::batch_problem(trainer.batch_size, g_data)) reject("{}", *problem);
  const int row = trainer.batch_size / g_data;
  if (!options.is_given("microbatch-size")) trainer.microbatch_size = default_microbatch_size;
  trainer.microbatch_size = std::min(trainer.microbatch_size, row);
  // With model chunks, the limit follows from the order of their passes.
  if (trainer.pipeline_limit == 0 && trainer.chunks_per_rank == 1) {
    const bool all = trainer.policy == Policy::gpipe;
    trainer.pipeline_limit = all ? runtime::ceil_divide(row, trainer.microbatch_size) : g_inter;
  }
}

void resolve_learning_rate(TrainOptions& options, const RunDefaults& run_defaults) {
  actors::LearningRateOptions& rate = options.trainer.learning_rate;
  const std::int64_t steps = options.trainer.steps;
  rate.steps = steps;
  if (!options.is_given("warmup-steps")) rate.warmup_steps = std::min<std::int64_t>(steps / 10, 100);
  if (!options.is_given("min-learning-rate")) rate.least = rate.peak / 10;
  keep_recorded(run_defaults, options, "warmup-steps", whole(rate.warmup_steps, 0));
  keep_recorded(run_defaults, options, "min-learning-rate", real(rate.least, 0));
  if (rate.least > rate.peak)
    reject("--min-learning-rate {}{} is above --learning-rate {}; use --min-learning-rate {}{}", rate.least,
           options.is_given("min-learning-rate") ? "" : " (the checkpoint's)", rate.peak, rate.peak / 10,
           options.is_given("min-learning-rate") ? "" : " and --resume-with learning-rate,min-learning-rate");
}

void resolve_optimizer(TrainOptions& options) {
  actors::TrainerOptions& trainer = options.trainer;
  const bool sgd = trainer.tiers.rule == UpdateRule::sgd, muon = trainer.tiers.rule == UpdateRule::muon;
  if (!options.is_given("momentum")) trainer.adamw.momentum = sgd ? 0.9 : 0.95;
  trainer.tiers.has_momentum = !sgd || trainer.adamw.momentum > 0;
  if (muon && trainer.learning_rate.muon_peak > 0 && trainer.learning_rate.peak == 0)
    reject("--muon-learning-rate {} needs --learning-rate above 0; use --learning-rate with a number above 0",
           trainer.learning_rate.muon_peak);
  if (const int tiles = models::value_of(options.model.sizes, models::Size::tile); muon && tiles > 1)
    reject(
        "--optimizer muon does not work with --tile {}, which splits matrices; remove --tile, or use --optimizer "
        "adamw",
        tiles);
}

void resolve_precision(TrainOptions& options, bool half_gradients, const std::string& reason) {
  models::Precision& precision = options.trainer.precision;
  actors::LossScale& loss_scale = options.trainer.loss_scale;
  const bool fp16 = precision.compute == runtime::DType::f16;
  if (half_gradients && precision.compute == runtime::DType::f32)
    reject("--gradient-dtype half needs half precision; use --precision bf16 or fp16");
  precision.gradient = half_gradients ? precision.compute : runtime::DType::f32;
  if (!options.is_given("loss-scale")) loss_scale.scale = fp16 ? 65536 : 1;
  if (!fp16 && loss_scale.scale != 1)
    reject("--loss-scale {} has no effect in {}; remove --loss-scale or use --precision fp16", loss_scale.scale,
           to_string(precision.compute));
  loss_scale.dynamic = fp16;
  models::set_precision(options.model.sizes, precision);
  if (reason.empty() || options.is_given("precision")) return;
  options.notes.push_back(fmt::format("precision: {} ({})", to_string(precision.compute), reason));
}

/// Refuses a --products-file without use, since the user expects it to keep the bits.
void check_products(const DeviceOptions& device, const models::Precision& precision) {
  if (device.products_file.empty()) return;
  const auto refuse = [&](const char* why) {
    reject("--products-file {} has no effect {}, or remove --products-file", device.products_file, why);
  };
  if (device.device != DeviceFlag::cuda) refuse("without a GPU; add --device cuda");
  if (precision.compute == runtime::DType::f32)
    refuse("in fp32, which is never measured; use --precision bf16 or fp16");
  if (!device.measures_products) refuse("with --products first; use --products measured");
}

}  // namespace

void resolve(AskedOptions& asked, int ranks, const RunDefaults& run_defaults) {
  TrainOptions& options = asked.options;
  if (asked.dry_run) options.run.request = Request::dry_run;
  if (asked.world > 0 && !asked.dry_run) reject("--world {} is for planning only; add --dry-run", asked.world);
  options.ranks = asked.world > 0 ? asked.world : ranks;
  if (options.run.timeout_seconds == 0) reject("--timeout 0 would end every job at once; use seconds, such as 60");

  actors::TrainerOptions& trainer = options.trainer;
  trainer.grid =
      runtime::complete_grid(trainer.grid, options.ranks, options.is_given("world") ? "--world" : "mpirun -n");
  resolve_sharding(options, asked.world > 0);
  check_collectives(options);
  if (options.is_given("hidden"))
    models::derive_sizes(options.model.sizes, options.is_given("heads"), options.is_given("ffn-size"));
  resolve_batch(options, run_defaults);
  resolve_data(options);
  adopt_initial_weights(options);
  expect_sizes_of_model(options.model);
  resolve_labels(options);
  choose_tokenizer(options);
  resolve_tuning(options);
  check_flags_of_part(options);
  check_model(options.model, trainer.grid);
  check_purpose(options);
  options.model.sizes =
      models::with_all_sizes(options.model.sizes);  // replaces 0 by the derived size, for tables and checkpoints
  resolve_learning_rate(options, run_defaults);
  resolve_optimizer(options);
  resolve_precision(options, asked.half_gradients, run_defaults.precision_reason);
  check_products(options.device, trainer.precision);
  resolve_tiers(options);
  resolve_checkpoints(options.checkpoint);
  if (trainer.bad_steps.action == BadAction::rollback && options.checkpoint.folder.empty() &&
      !options.checkpoint.resumes())
    reject("--bad-steps rollback needs checkpoints; add --checkpoint DIR or use --bad-steps skip");
  if (!options.checkpoint.folder.empty() || options.run.save_every > 0)
    trainer.checkpoint_staging = actors::Snapshot::Options().staging_bytes;
}

}  // namespace ranvier::apps
