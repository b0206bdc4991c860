#include "apps/options/other_names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

constexpr std::string_view no_epochs =
    "training length is set in steps, not epochs: use --steps; the startup output prints the number of epochs";
constexpr std::string_view no_tensor_parallelism =
    "tensor parallelism is not supported: use --g-inter for pipeline stages, or --tile for large matrices";
constexpr std::string_view no_sequence_parallelism =
    "context and sequence parallelism are not supported: use --recompute, or a smaller --microbatch-size";
constexpr std::string_view no_expert_parallelism =
    "expert parallelism is not supported: use --g-inter and --g-data";
constexpr std::string_view ranks_of_mpi = "use mpirun -n N to start N ranks, or --world N to plan for N ranks";
constexpr std::string_view only_adamw =
    "the optimizer is AdamW: use --beta1, --beta2, --epsilon and --weight-decay";

constexpr OtherName names[] = {
    // Model sizes.
    {"num-layers", "layers"},
    {"num-hidden-layers", "layers"},
    {"n-layer", "layers"},
    {"n-layers", "layers"},
    {"depth", "layers"},
    {"hidden-size", "hidden"},
    {"n-embd", "hidden"},
    {"d-model", "hidden"},
    {"dim", "hidden"},
    {"num-attention-heads", "heads"},
    {"num-heads", "heads"},
    {"n-head", "heads"},
    {"n-heads", "heads"},
    {"num-query-groups", "kv-heads"},
    {"num-key-value-heads", "kv-heads"},
    {"n-kv-heads", "kv-heads"},
    {"kv-channels", "head-size"},
    {"head-dim", "head-size"},
    {"ffn-hidden-size", "ffn-size"},
    {"intermediate-size", "ffn-size"},
    {"d-ff", "ffn-size"},
    {"seq-length", "sequence-length"},
    {"seq-len", "sequence-length"},
    {"max-seq-length", "sequence-length"},
    {"max-seq-len", "sequence-length"},
    {"max-length", "sequence-length"},
    {"max-position-embeddings", "sequence-length"},
    {"block-size", "sequence-length"},
    {"context-length", "sequence-length"},
    {"sliding-window", "window"},
    {"attention-dropout", "dropout"},
    {"hidden-dropout", "dropout"},
    {"lora-r", "lora-rank"},
    {"target-modules", "lora-targets"},
    // Batches and steps.
    {"global-batch-size", "batch-size"},
    {"train-batch-size", "batch-size"},
    {"total-batch-size", "batch-size"},
    {"gradient-accumulation-steps", "batch-size"},
    {"grad-accum-steps", "batch-size"},
    {"accumulate-grad-batches", "batch-size"},
    {"micro-batch-size", "microbatch-size"},
    {"per-device-train-batch-size", "microbatch-size"},
    {"per-device-eval-batch-size", "microbatch-size"},
    {"train-micro-batch-size-per-gpu", "microbatch-size"},
    {"max-steps", "steps"},
    {"max-iters", "steps"},
    {"train-iters", "steps"},
    {"num-iterations", "steps"},
    {"num-train-steps", "steps"},
    {"total-steps", "steps"},
    {"num-train-epochs", "", "", no_epochs},
    {"num-epochs", "", "", no_epochs},
    {"epochs", "", "", no_epochs},
    // The optimizer.
    {"lr", "learning-rate"},
    {"max-lr", "learning-rate"},
    {"min-lr", "min-learning-rate"},
    {"lr-decay-style", "lr-decay"},
    {"lr-scheduler", "lr-decay"},
    {"lr-scheduler-type", "lr-decay"},
    {"warmup", "warmup-steps"},
    {"warmup-iters", "warmup-steps"},
    {"warmup-ratio", "warmup-steps"},
    {"lr-warmup-iters", "warmup-steps"},
    {"num-warmup-steps", "warmup-steps"},
    {"wd", "weight-decay"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"adam-eps", "epsilon"},
    {"adam-epsilon", "epsilon"},
    {"eps", "epsilon"},
    {"clip-grad", "clip"},
    {"grad-clip", "clip"},
    {"gradient-clipping", "clip"},
    {"max-grad-norm", "clip"},
    {"initial-loss-scale", "loss-scale"},
    {"optim", "", "", only_adamw},
    {"optimizer", "", "", only_adamw},
    // Precision and memory.
    {"bf16", "precision", "bf16"},
    {"fp16", "precision", "fp16"},
    {"half", "precision", "bf16"},
    {"amp", "precision", "bf16"},
    {"dtype", "precision"},
    {"torch-dtype", "precision"},
    {"mixed-precision", "precision"},
    {"gradient-checkpointing", "recompute", "auto"},
    {"activation-checkpointing", "recompute", "auto"},
    {"checkpoint-activations", "recompute", "auto"},
    {"recompute-activations", "recompute", "auto"},
    {"recompute-granularity", "recompute"},
    {"cpu-offload", "offload"},
    {"offload-optimizer", "optimizer-tier", "host"},
    {"offload-param", "parameter-tier", "host"},
    {"use-flash-attn", "attention"},
    {"flash-attention", "attention"},
    // Ranks.
    {"zero-stage", "shard"},
    {"stage", "shard"},
    {"fsdp", "shard", "zero3"},
    {"use-distributed-optimizer", "shard", "zero1"},
    {"data-parallel-size", "g-data"},
    {"dp", "g-data"},
    {"pipeline-model-parallel-size", "g-inter"},
    {"pipeline-parallel-size", "g-inter"},
    {"num-stages", "g-inter"},
    {"pp", "g-inter"},
    {"num-virtual-stages-per-pipeline-rank", "chunks-per-rank"},
    {"tensor-model-parallel-size", "", "", no_tensor_parallelism},
    {"tensor-parallel-size", "", "", no_tensor_parallelism},
    {"tp", "", "", no_tensor_parallelism},
    {"context-parallel-size", "", "", no_sequence_parallelism},
    {"cp", "", "", no_sequence_parallelism},
    {"sequence-parallel", "", "", no_sequence_parallelism},
    {"expert-model-parallel-size", "", "", no_expert_parallelism},
    {"ep", "", "", no_expert_parallelism},
    {"nproc-per-node", "", "", ranks_of_mpi},
    {"num-gpus", "", "", ranks_of_mpi},
    {"world-size", "", "", ranks_of_mpi},
    // Files and intervals.
    {"data-path", "data"},
    {"data-dir", "data"},
    {"dataset", "data"},
    {"dataset-name", "data"},
    {"dataset-path", "data"},
    {"train-data-path", "data"},
    {"train-file", "data"},
    {"input-bin", "data"},
    {"vocab-file", "tokenizer"},
    {"merge-file", "tokenizer"},
    {"tokenizer-model", "tokenizer"},
    {"tokenizer-name", "tokenizer"},
    {"tokenizer-path", "tokenizer"},
    {"tokenizer-name-or-path", "tokenizer"},
    {"model-name-or-path", "init-from"},
    {"pretrained-checkpoint", "init-from"},
    {"load", "resume"},
    {"load-checkpoint", "resume"},
    {"resume-from-checkpoint", "resume"},
    {"output-dir", "save"},
    {"out-dir", "save"},
    {"save-interval", "checkpoint-every"},
    {"save-steps", "checkpoint-every"},
    {"save-total-limit", "checkpoint-keep"},
    {"exit-duration-in-mins", "time-limit"},
    {"split", "validation-split"},
    {"val-split", "validation-split"},
    {"eval-interval", "eval-every"},
    {"eval-steps", "eval-every"},
    {"eval-iters", "eval-samples"},
    {"log-interval", "log-every"},
    {"logging-steps", "log-every"},
    {"tensorboard-dir", "tensorboard"},
    {"logging-dir", "tensorboard"},
    {"report-to", "tensorboard"},
};

}  // namespace

std::span<const OtherName> other_names() { return names; }

std::optional<std::string> advice_on_other_name(std::string_view name, bool is_key) {
  std::string with_dashes(name);
  std::replace(with_dashes.begin(), with_dashes.end(), '_', '-');
  const auto* const found = std::find_if(std::begin(names), std::end(names),
                                         [&](const OtherName& one) { return one.name == with_dashes; });
  if (found == std::end(names)) return {};
  if (found->flag.empty()) return std::string(found->remedy);
  return fmt::format("did you mean {}{}{}{}?", is_key ? "" : "--", found->flag,
                     found->value.empty() ? ""
                     : is_key             ? " = "
                                          : " ",
                     found->value);
}

}  // namespace ranvier::apps
