#include "apps/options/train_options.hpp"

#include "apps/options/flag_groups.hpp"
#include "collectives/plans/link_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

using actors::UpdateRule;
using BadAction = actors::BadStepOptions::Action;
using Decay = actors::LearningRateOptions::Decay;

constexpr std::string_view no_size = "none";  // value of a size that the model's family lacks

std::vector<std::string> model_words(bool presets) {
  std::vector<std::string> names;
  for (const models::NamedModel& model : models::named_models())
    if (model.is_preset == presets) names.emplace_back(model.name);
  return names;
}

std::string model_names(bool presets) { return fmt::format("{}", fmt::join(model_words(presets), ", ")); }

/// Sets all sizes; declared before the flags that override them.
OptionBinding model(ModelOptions& field) {
  std::vector<std::string> words = model_words(false);
  for (std::string& preset : model_words(true)) words.push_back(std::move(preset));
  return {.read = [&field](const std::string& name) -> std::optional<std::string> {
            const auto sizes = models::named_model(name);
            if (!sizes) return fmt::format("one of {}, {}", model_names(false), model_names(true));
            field = {name, *sizes};
            return {};
          },
          .write = [&field] { return field.name; },
          .words = std::move(words)};
}

/// Binding of a size of the model in --model.
OptionBinding size(ModelOptions& model, models::Size which, int least = 1) {
  return {.read = [&model, which, least](const std::string& given) -> std::optional<std::string> {
            int* const field = models::find_size(model.sizes, which);
            if (field == nullptr && given == no_size) return {};
            return whole(field != nullptr ? *field : model.other_sizes[which], least, max_count).read(given);
          },
          .write =
              [&model, which] {
                models::ModelSizes sizes = model.sizes;
                const int* const field = models::find_size(sizes, which);
                if (field != nullptr) return fmt::format("{}", *field);
                const auto other = model.other_sizes.find(which);
                return other == model.other_sizes.end() ? std::string(no_size) : fmt::format("{}", other->second);
              }};
}

OptionBinding dropout(ModelOptions& model) {
  return {.read = [&model](const std::string& given) -> std::optional<std::string> {
            float rate = 0;
            if (auto problem = real(rate, 0, 1, true).read(given)) return problem;
            float* const field = models::find_dropout(model.sizes);
            if (field != nullptr) *field = rate;
            if (field == nullptr && rate != 0) return fmt::format("0, since --model {} has no dropout", model.name);
            return {};
          },
          .write = [&model] { return fmt::format("{}", models::dropout_of(model.sizes)); }};
}

/// Reads the number of blocks per group of an image model: "3,4,6,3".
OptionBinding blocks(ModelOptions& model) {
  return {
      .read = [&model](const std::string& given) -> std::optional<std::string> {
        auto* const field = models::find_blocks(model.sizes);
        if (field == nullptr && given == "none") return {};
        if (field == nullptr)
          return fmt::format("none, since --model {} has no block groups, or use --model wide-resnet", model.name);
        static constexpr const char* valid = "four numbers above 0, as in 3,4,6,3";
        std::vector<int> numbers;
        const auto read = list<int>(numbers, valid, [](const std::string& item) { return parse_whole(item, 1); });
        if (read.read(given) || numbers.size() != field->size()) return valid;
        std::ranges::copy(numbers, field->begin());
        return {};
      },
      .write =
          [&model] {
            models::ModelSizes sizes = model.sizes;
            const auto* const field = models::find_blocks(sizes);
            return field == nullptr ? std::string("none") : fmt::format("{}", fmt::join(*field, ","));
          }};
}

/// Reads 0 or a factor above 1; up to 1, about half of all losses would be spikes.
OptionBinding spike_factor(double& field) {
  return only_if(real(field, 0), field, "a number above 1, or 0",
                 [](double factor) { return factor == 0 || factor > 1; });
}

}  // namespace

TrainTable declare_train(AskedOptions& asked) {
  auto& [ranks, model_options, trainer, offload, shard, data, device_options, checkpoint, run, given, notes] =
      asked.options;
  auto& adamw = trainer.adamw;
  auto& rate = trainer.learning_rate;
  const NoEffect no_gpu = unused_if([&asked] { return asked.options.device.device != DeviceFlag::cuda; },
                                    "without a GPU (--device cuda)");
  TrainTable table;
  table.lacks("num-train-epochs num-epochs epochs",
              "training length is set in steps, not epochs: use --steps; the startup output prints the number of "
              "epochs");
  table.lacks(
      "tensor-model-parallel-size tensor-parallel-size tp",
      "tensor parallelism is not supported: use --g-inter for pipeline stages, or --tile for large matrices");
  table.lacks(
      "context-parallel-size cp sequence-parallel",
      "context and sequence parallelism are not supported: use --recompute, or a smaller --microbatch-size");
  table.lacks("expert-model-parallel-size ep", "expert parallelism is not supported: use --g-inter and --g-data");
  table.lacks("nproc-per-node num-gpus world-size",
              "use mpirun -n N to start N ranks, or --world N to plan for N ranks");

  table.concern("Model");
  using models::Size;
  // A preset stands for sizes and the computation, which are compared on their own.
  table.add({Effect::bits, "model", "NAME", "Preset, or model family with sizes from the flags below",
             model(model_options), "gpt, or the model of --init-from", false,
             "families: " + model_names(false) + "; presets: " + model_names(true)},
            {.usual = true});
  table.add({Effect::shape, "layers", "L", "Number of transformer blocks", size(model_options, Size::layers)},
            {.also = "num-layers num-hidden-layers n-layer n-layers depth", .usual = true});
  table.add({Effect::shape, "hidden", "C", "Model width in channels; for wide-resnet, of the first block group",
             size(model_options, Size::hidden)},
            {.also = "hidden-size n-embd d-model dim", .usual = true});
  table.add(
      {Effect::decides, "heads", "H", "Number of attention heads; must divide --hidden unless --head-size is given",
       size(model_options, Size::heads), "the preset's, else the most with at least 64 channels each"},
      {.also = "num-attention-heads num-heads n-head n-heads", .usual = true});
  table.add({Effect::shape, "kv-heads", "K", "Number of key/value heads (grouped-query attention); 0 uses --heads",
             size(model_options, Size::kv_heads, 0), "0, or the preset's"},
            {.also = "num-query-groups num-key-value-heads n-kv-heads"});
  table.add({Effect::shape, "head-size", "D", "Channels per attention head; 0 uses --hidden / --heads",
             size(model_options, Size::head_size, 0), "0, or the preset's"},
            {.also = "kv-channels head-dim"});
  table.add({Effect::shape, "ffn-size", "F", "Inner width of the MLP in channels; GPT always uses 4 times --hidden",
             size(model_options, Size::ffn_size), "8/3 of --hidden with a gate, 4 times for BERT, or the preset's"},
            {.also = "ffn-hidden-size intermediate-size d-ff"});
  table.add(
      {Effect::decides, "window", "N", "Sliding attention window in tokens, current one included; 0 disables it",
       size(model_options, Size::window, 0), "0, or the preset's"},
      {.also = "sliding-window"});
  table.add({Effect::shape, "vocab-size", "V", "Vocabulary size in tokens", size(model_options, Size::vocab_size),
             "256 for bytes (257 with a mask), 50257 for token files, or the preset's"});
  table.add({Effect::shape, "sequence-length", "T", "Sample length in tokens",
             size(model_options, Size::sequence_length)},
            {.also = "seq-length seq-len max-seq-length max-seq-len max-length max-position-embeddings block-size "
                     "context-length",
             .usual = true});
  table.add({Effect::shape, "blocks", "N,N,N,N", "Number of blocks in each of the four groups of wide-resnet",
             blocks(model_options)});
  table.add({Effect::shape, "width", "N",
             "Factor by which a wide-resnet block's inner width exceeds its group's width",
             size(model_options, Size::width)});
  table.add({Effect::shape, "image-size", "S", "Image width and height in pixels",
             size(model_options, Size::image_size)});
  table.add({Effect::shape, "classes", "N",
             "Number of classes, for image models and text classification (--label-field); 0 trains BERT and "
             "RoBERTa to fill masks",
             size(model_options, Size::classes, 0), "the number of labels, or the preset's"});
  table.add({Effect::decides, "dropout", "RATE", "Dropout rate", dropout(model_options),
             "0, or the rate in the config.json of --init-from"},
            {.also = "attention-dropout hidden-dropout"});
  declare_tuning(table, model_options);

  table.concern("Grid");
  table.add({Effect::bits, "g-inter", "N", "Number of pipeline stages; at most the number of blocks (--layers)",
             whole(trainer.grid.g_inter, 1, max_count)},
            {.also = "pipeline-model-parallel-size pipeline-parallel-size num-stages pp",
             .usual = true,
             .plan = PlanRole::sized});
  table.add({Effect::rounding, "g-data", "N",
             "Number of rows (data-parallel pipelines); --g-inter × --g-data must equal the number of ranks",
             or_word(trainer.grid.g_data, "auto", 0, whole(trainer.grid.g_data, 0, max_count), "a number, or auto"),
             "auto: ranks / g-inter"},
            {.also = "data-parallel-size dp", .usual = true, .plan = PlanRole::sized});

  declare_sharding(table, trainer, shard);

  table.concern("Batch");
  table.add({Effect::decides, "batch-size", "N",
             "Samples per step over all ranks (global batch size); must be a multiple of --g-data",
             whole(trainer.batch_size, 1, max_count), "16, rounded up to a multiple of --g-data"},
            {.also = "global-batch-size train-batch-size total-batch-size gradient-accumulation-steps "
                     "grad-accum-steps accumulate-grad-batches",
             .usual = true,
             .plan = PlanRole::required});
  table.add(
      {Effect::rounding, "microbatch-size", "N", "Samples per microbatch",
       whole(trainer.microbatch_size, 1, max_count), "4, at most --batch-size / --g-data"},
      {.also =
           "micro-batch-size per-device-train-batch-size per-device-eval-batch-size train-micro-batch-size-per-gpu",
       .usual = true,
       .plan = PlanRole::sized});
  declare_pipeline(table, trainer);

  declare_data(table, data, trainer, model_options);

  table.concern("Optimizer");
  const UpdateRule& rule = trainer.tiers.rule;
  const NoEffect unused_by_sgd = unused_if([&rule] { return rule == UpdateRule::sgd; }, "with --optimizer sgd");
  table.add(
      {Effect::decides, "optimizer", "NAME",
       "Update rule: adamw; muon (orthogonalized momentum for matrices inside blocks, AdamW for the rest); or "
       "sgd",
       choice<UpdateRule>(trainer.tiers.rule,
                          {{"adamw", UpdateRule::adamw}, {"muon", UpdateRule::muon}, {"sgd", UpdateRule::sgd}})},
      {.also = "optim optimizer-type optimizer-name"});
  table.add({Effect::decides, "steps", "N", "Number of optimizer steps", whole(trainer.steps, 1)},
            {.also = "max-steps max-iters train-iters num-iterations num-train-steps total-steps", .usual = true});
  table.add({Effect::decides, "learning-rate", "RATE", "Peak learning rate", real(rate.peak, 0)},
            {.also = "lr max-lr", .usual = true});
  table.add({Effect::decides, "warmup-steps", "N", "Steps of linear learning rate warm-up",
             whole(rate.warmup_steps, 0), "a tenth of --steps, at most 100"},
            {.also = "warmup warmup-iters warmup-ratio lr-warmup-iters num-warmup-steps", .usual = true});
  table.add({Effect::decides, "lr-decay", "NAME", "Learning rate decay after warm-up: cosine, linear or constant",
             choice<Decay>(rate.decay,
                           {{"cosine", Decay::cosine}, {"linear", Decay::linear}, {"constant", Decay::constant}})},
            {.also = "lr-decay-style lr-scheduler lr-scheduler-type", .usual = true});
  table.add({Effect::decides, "min-learning-rate", "RATE", "Learning rate at the end of the decay",
             real(rate.least, 0), "a tenth of --learning-rate"},
            {.also = "min-lr",
             .unused = unused_if([&rate] { return rate.decay == Decay::constant; }, "with --lr-decay constant")});
  table.add({Effect::decides, "muon-learning-rate", "RATE",
             "Peak learning rate of Muon's matrices, whose updates are scaled to the size of AdamW's; same: "
             "--learning-rate",
             or_word(rate.muon_peak, "same", 0, real(rate.muon_peak, 1e-30), "a number above 0, or same")},
            {.also = "muon-lr matrix-lr",
             .unused = unused_if([&rule] { return rule != UpdateRule::muon; }, "without --optimizer muon")});
  table.add({Effect::decides, "beta1", "B", "AdamW β1", real(adamw.beta1, 0, 1, true)},
            {.also = "adam-beta1", .unused = unused_by_sgd});
  table.add({Effect::decides, "beta2", "B", "AdamW β2", real(adamw.beta2, 0, 1, true)},
            {.also = "adam-beta2", .unused = unused_by_sgd});
  table.add({Effect::decides, "epsilon", "E", "AdamW ε", real(adamw.epsilon, 1e-30)},
            {.also = "adam-eps adam-epsilon eps", .unused = unused_by_sgd});
  table.add({Effect::decides, "momentum", "M", "Momentum of SGD and Muon; with SGD, 0 needs no memory for it",
             real(adamw.momentum, 0, 1, true), "0.9 with sgd, 0.95 with muon"},
            {.also = "sgd-momentum muon-momentum",
             .unused = unused_if([&rule] { return rule == UpdateRule::adamw; }, "with --optimizer adamw")});
  table.add({Effect::decides, "weight-decay", "RATE", "Decoupled weight decay of matrices and embeddings",
             real(adamw.weight_decay, 0)},
            {.also = "wd"});
  table.add({Effect::decides, "clip", "NORM", "Clip the global gradient norm to this value; 0 disables clipping",
             real(trainer.clip, 0)},
            {.also = "clip-grad grad-clip gradient-clipping max-grad-norm"});
  auto& bad = trainer.bad_steps;
  table.add(
      {Effect::judges, "bad-steps", "ACTION",
       "Action on a non-finite loss or gradient, or a loss spike: stop; skip the update; rollback to the last "
       "checkpoint, dropping that step's samples",
       choice<BadAction>(
           bad.action, {{"stop", BadAction::stop}, {"skip", BadAction::skip}, {"rollback", BadAction::rollback}})});
  table.add({Effect::judges, "bad-steps-limit", "N", "Maximum number of bad steps in a row; one more ends the job",
             whole(bad.limit, 1)},
            {.unused = unused_if([&bad] { return bad.action == BadAction::stop; },
                                 "with --bad-steps stop, which ends the job at the first bad step")});
  table.add({Effect::judges, "spike-factor", "X",
             fmt::format("A loss above X times the median of the last {} steps is a loss spike, handled by "
                         "--bad-steps; 0 disables the test",
                         actors::RecentMedian::window),
             spike_factor(bad.spike_factor)});
  table.add({Effect::bits, "check-every", "STEPS",
             "Every N steps, before checkpoints and at the end, compare the replicas of all states; on a mismatch, "
             "the job stops, or rolls back with --bad-steps rollback; 0 disables",
             whole(trainer.check_every, 0)},
            {.unused = unused_if([&asked] { return asked.options.ranks == 1; },
                                 "with one rank, whose states have no replicas")});
  table.add(
      {Effect::decides, "seed", "N", "Random seed for weights, dropout and sample order", whole(trainer.seed, 0)},
      {.usual = true});

  table.concern("Precision");
  table.add({Effect::decides, "precision", "TYPE",
             "Type of activations, messages and working weights: fp32, bf16 or fp16",
             choice<runtime::DType>(
                 trainer.precision.compute,
                 {{"fp32", runtime::DType::f32}, {"bf16", runtime::DType::bf16}, {"fp16", runtime::DType::f16}}),
             fmt::format("{}; a resumed run: the checkpoint's", default_precision_text)},
            {.also = "bf16=bf16 fp16=fp16 half=bf16 amp=bf16 dtype torch-dtype mixed-precision", .usual = true});
  table.add({Effect::decides, "gradient-dtype", "TYPE",
             "Type of accumulated gradients: fp32, or half (the type of --precision)",
             choice<bool>(asked.half_gradients, {{"fp32", false}, {"half", true}})});
  table.add(
      {Effect::decides, "master-dtype", "TYPE",
       "Type of master weights: fp32, or bf16 with stochastic rounding; with --precision bf16 and parameters on "
       "the device, there are no separate ones then",
       choice<runtime::DType>(trainer.tiers.master,
                              {{"fp32", runtime::DType::f32}, {"bf16", runtime::DType::bf16}})});
  table.add(
      {Effect::decides, "moment-dtype", "TYPE",
       "Type of the optimizer's moments: fp32; bf16 with stochastic rounding; int8 with a scale per 256 elements",
       choice<runtime::DType>(
           trainer.tiers.moments,
           {{"fp32", runtime::DType::f32}, {"bf16", runtime::DType::bf16}, {"int8", runtime::DType::i8}})});
  // The checkpoint has the current loss scale.
  table.add({Effect::run, "loss-scale", "X", "Initial loss scale with fp16", real(trainer.loss_scale.scale, 1),
             "65536 with fp16, otherwise 1"},
            {.also = "initial-loss-scale"});

  table.concern("Device");
  table.add({Effect::rounding, "device", "NAME",
             "cpu; cuda: the GPUs of a node in turn; cuda:N: GPU N; inline: a CPU that computes on the event "
             "loop's thread, for tests",
             device_flag(device_options.device, device_options.gpu)},
            {.usual = true, .plan = PlanRole::machine});
  table.add({Effect::bits, "p2p", "MODE",
             "Messages from and to GPU memory: staged through pinned memory; direct (CUDA-aware MPI); auto: direct "
             "if MPI is CUDA-aware on every rank, but staged if NCCL is combined with pipeline stages or Muon",
             choice<PointToPoint>(device_options.point_to_point, {{"auto", PointToPoint::automatic},
                                                                  {"staged", PointToPoint::staged},
                                                                  {"direct", PointToPoint::direct}})},
            {.plan = PlanRole::gpu, .unused = no_gpu});
  table.add({Effect::rounding, "collectives", "MODE",
             "Backend of collectives on GPUs: nccl, plans (Ranvier's own, over MPI), or auto (nccl if possible); "
             "--all-gather, --reduce-scatter and --all-reduce apply to both",
             choice<CollectiveBackend>(device_options.collectives, {{"auto", CollectiveBackend::automatic},
                                                                    {"nccl", CollectiveBackend::nccl},
                                                                    {"plans", CollectiveBackend::plans}})},
            {.plan = PlanRole::gpu, .unused = no_gpu});
  table.add({Effect::rounding, "products", "MODE",
             "Matrix multiplications on a GPU in half precision: measured: benchmark cuBLASLt's algorithms before "
             "the first step; first: use cuBLASLt's first proposal, the same in every run",
             choice<bool>(device_options.measures_products, {{"measured", true}, {"first", false}})},
            {.unused = no_gpu});
  table.add({Effect::rounding, "products-file", "FILE",
             "File that keeps the choices of --products measured and --attention auto, so that later runs have the "
             "same bits; created or extended",
             text(device_options.products_file)});
  table.add(
      {Effect::rounding, "attention", "MODE",
       "Attention kernels on a GPU in half precision without dropout: ranvier, cudnn, or auto: the faster one if "
       "--products is measured",
       choice<models::AttentionKernels>(device_options.attention, {{"auto", models::AttentionKernels::measured},
                                                                   {"cudnn", models::AttentionKernels::cudnn},
                                                                   {"ranvier", models::AttentionKernels::own}})},
      {.also = "use-flash-attn flash-attention", .unused = no_gpu});
  table.add({Effect::rounding, "attention-backward", "MODE",
             "cuDNN's attention backward pass: deterministic (same bits in every run), or fast with less memory",
             choice<bool>(device_options.fast_attention_backward, {{"deterministic", false}, {"fast", true}})});
  table.add(
      {Effect::bits, "cuda-graphs", "on|off", "Replay the kernel launches of a block as one CUDA graph; same bits",
       choice<bool>(device_options.cuda_graphs, {{"on", true}, {"off", false}})},
      {.unused = no_gpu});
  table.add({Effect::bits, "device-memory", "SIZE", "Device memory that each rank may use, as in 512MiB",
             bytes(device_options.memory_bytes), "the machine's", true});
  table.add(
      {Effect::rounding, "threads", "N",
       "Compute threads per rank; 0: the cores that affinity and CPU quotas allow, divided among the ranks "
       "of the node",
       whole(device_options.threads, 0, 4096), "", true},
      {.usual = true,
       .plan = PlanRole::machine,
       .unused = unused_if([&asked] { return asked.options.device.device == DeviceFlag::cuda; }, "on a GPU")});

  declare_tiers(table, trainer, offload);
  // Tiles are separate units in checkpoints.
  table.add({Effect::shape, "tile", "N",
             "Tiles per large matrix, gathered and released one after another; must divide --hidden and --ffn-size",
             size(model_options, models::Size::tile)});

  declare_checkpoints(table, checkpoint);
  declare_planning(table, run);

  declare_watching(table, run);

  table.concern("Run");
  // A resumed run has the checkpoint's weights.
  table.add({Effect::run, "init-from", "PATH",
             "Initial weights: a safetensors file, or a folder with config.json and tokenizer (Hugging Face)",
             text(run.init_from)},
            {.also = "model-name-or-path pretrained-checkpoint", .usual = true});
  table.add({Effect::run, "ignore-tensors", "REGEX", "Skip tensors of --init-from whose name contains a match",
             text(run.ignored_tensors)});
  table.add({Effect::run, "init-adapter", "FOLDER",
             "Folder of the initial adapter, written by PEFT or --save; --lora-rank and the other --lora flags are "
             "read from this folder",
             text(run.init_adapter)});
  table.add({Effect::run, "save", "PATH",
             "Write the final weights to this safetensors file or folder; a folder also gets config.json and the "
             "tokenizer",
             text(run.save)},
            {.also = "output-dir out-dir", .usual = true, .plan = PlanRole::output});
  table.add({Effect::run, "save-every", "STEPS",
             "Write weights every N steps, not only at the end, to SAVE/weights-STEP (such as weights-00000500); 0 "
             "disables",
             whole(run.save_every, 0)});
  table.add({Effect::run, "save-file-size", "SIZE",
             "Largest weights file of --save FOLDER; larger models are split into several files with an index",
             bytes(run.save_file_bytes)});
  table.add({Effect::run, "overwrite", "",
             "Replace existing files of --save, --save-every and --trace, and start --metrics from scratch",
             switch_on(run.overwrite)},
            {.usual = true});
  table.add({Effect::run, "timeout", "SECONDS",
             "End the job if a rank makes no progress or does not respond for this many seconds (longer while it "
             "accesses files)",
             real(run.timeout_seconds, 0, 1e6)});
  table.add({Effect::run, "separate-ranks", "",
             "Let processes train separately if MPI does not connect them, instead of an error",
             switch_on(run.separate_ranks)});
  table.add({Effect::run, "config", "FILE", "Read options from lines of key = value; flags have precedence",
             text(run.config), "", true},
            {.usual = true});
  table.add(
      {Effect::run, "dry-run", "", "Print configuration and memory needs, then stop", switch_on(asked.dry_run)},
      {.usual = true, .plan = PlanRole::request});
  table.add({Effect::run, "world", "N", "Number of ranks to assume with --dry-run",
             whole(asked.world, 0, max_count), "the job's"},
            {.plan = PlanRole::machine});
  declare_info(table, run.info);
  return table;
}

AskedOptions default_options() {
  AskedOptions asked;
  asked.options.model.sizes = *models::named_model(asked.options.model.name);
  actors::TrainerOptions& trainer = asked.options.trainer;
  trainer.grid.g_data = 0;
  trainer.steps = 500;
  trainer.seed = 1234;
  trainer.learning_rate.decay = Decay::cosine;
  return asked;
}

bool TrainOptions::is_given(std::string_view flag) const { return std::ranges::find(given, flag) != given.end(); }

AskedOptions asked_options(const std::vector<GivenFlag>& flags) {
  AskedOptions asked = default_options();
  TrainTable table = declare_train(asked);
  table.read(flags);
  asked.options.given = table.given();
  return asked;
}

TrainOptions parse_train_options(int argc, const char* const* argv, int ranks, const RunDefaults& run_defaults,
                                 const std::vector<GivenFlag>& chosen) {
  AskedOptions asked = default_options();
  TrainOptions& options = asked.options;
  options.trainer.precision.compute = run_defaults.precision;
  TrainTable table = declare_train(asked);
  table.parse(argc, argv);
  options.given = table.given();
  if (options.run.info.any()) {
    options.run.request = Request::info;
    return options;
  }
  for (const GivenFlag& flag : chosen) {
    table.assign(flag);
    std::erase(options.given, flag.name);
    if (!flag.value.empty()) options.given.push_back(flag.name);
  }
  resolve(asked, ranks, run_defaults);
  for (const std::string& note : table.unused()) options.notes.push_back("note: " + note);
  const std::int64_t steps = options.trainer.steps;
  const actors::LearningRateOptions& rate = options.trainer.learning_rate;
  if (rate.warmup_steps > steps)
    options.notes.push_back(fmt::format(
        "note: --warmup-steps {} exceeds --steps {}: the learning rate reaches {:.3g} instead of {:.3g}",
        rate.warmup_steps, steps, rate.peak * static_cast<double>(steps) / static_cast<double>(rate.warmup_steps),
        rate.peak));
  return options;
}

Manual train_manual(const char* program) {
  AskedOptions asked = default_options();
  return {.program = program,
          .summary = "trains a transformer on the ranks that mpirun starts",
          .forms = {{fmt::format("mpirun -n 4 {} --data FILE --g-inter 2", program), ""}},
          .status_1 = "the job of --dry-run does not fit",
          .options = declare_train(asked).facts()};
}

std::vector<GivenFlag> given_train_flags(int argc, const char* const* argv) {
  AskedOptions asked = default_options();
  OptionTable table = declare_train(asked);
  table.parse(argc, argv);
  return table.given_flags();
}

std::vector<ResolvedOption> resolved(const TrainOptions& options) {
  AskedOptions asked;
  asked.options = options;
  asked.world = options.ranks;
  asked.half_gradients = options.trainer.precision.gradient != runtime::DType::f32;
  asked.dry_run = options.run.request == Request::dry_run;
  auto all = declare_train(asked).resolved();
  std::erase_if(all, [](const auto& option) { return is_info_request(option.name); });
  if (!options.shard.links.empty()) {
    // The same path may have other content on another node; ranks would then choose different plans.
    const auto links = std::ranges::find_if(all, [](const auto& option) { return option.name == "links"; });
    std::string figures = collectives::to_json(options.trainer.links);
    std::erase(figures, '\n');
    all.insert(links + 1, {links->concern, "links' figures", figures, false, false, links->effect});
  }
  return all;
}

const TrainTable& train_table() {
  static AskedOptions asked = default_options();
  static const TrainTable table = declare_train(asked);
  return table;
}

const OptionTraits& traits_of(std::string_view flag) { return train_table().traits(flag); }

std::vector<ResolvedOption> default_flags() { return train_table().resolved(); }

std::uint64_t options_hash(const TrainOptions& options) { return hash_of(resolved(options)); }

}  // namespace ranvier::apps
