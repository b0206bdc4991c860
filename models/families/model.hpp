// A model of any family by its sizes, from flags, presets or config.json. Callers need not know the family; a new one
// is an alternative of ModelSizes and an entry in model.cpp. Pure; any thread.
#pragma once

#include "models/core/tuning.hpp"
#include "models/families/bert.hpp"
#include "models/families/gpt.hpp"
#include "models/families/llama.hpp"
#include "models/families/resnet.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ranvier::models {

/// Sizes of a model, and with them its family.
using ModelSizes = std::variant<GptOptions, LlamaOptions, BertOptions, ResnetOptions>;

/// Sizes that users can set one by one.
enum class Size {
  layers,
  hidden,
  heads,
  kv_heads,
  head_size,
  ffn_size,
  vocab_size,
  sequence_length,
  window,
  tile,
  width,
  image_size,
  classes
};

/// All sizes with their flag names: "layers", "kv-heads".
[[nodiscard]] std::span<const std::pair<Size, std::string_view>> named_sizes() noexcept;

/// The field of a size; null if the family does not have it.
[[nodiscard]] int* find_size(ModelSizes& sizes, Size which) noexcept;
/// Value of a size; 0 if the family does not have it.
[[nodiscard]] int value_of(const ModelSizes& sizes, Size which) noexcept;
/// Blocks of each group of a residual network; null for other families.
[[nodiscard]] std::array<int, ResnetOptions::rows>* find_blocks(ModelSizes& sizes) noexcept;
/// Blocks of a transformer, or all layers of a residual network: the maximum number of pipeline stages.
[[nodiscard]] int layers_of(const ModelSizes& sizes) noexcept;

/// Number of positions with parameters, of which sequence_length are trained; null if there are none.
[[nodiscard]] int* find_positions(ModelSizes& sizes) noexcept;

/// Dropout rate; null if the family has no dropout.
[[nodiscard]] float* find_dropout(ModelSizes& sizes) noexcept;
[[nodiscard]] float dropout_of(const ModelSizes& sizes) noexcept;

void set_precision(ModelSizes& sizes, const Precision& precision) noexcept;
/// Sets the attention kernels on a GPU; see GptOptions.
void set_attention(ModelSizes& sizes, AttentionKernels kernels, bool fast_backward) noexcept;
/// Sets the maximum number of targets per sample; no effect if every position has one (fills_masks()).
void set_targets(ModelSizes& sizes, int targets) noexcept;
/// Attention shape of one sample, for choosing kernels; none for a family without attention.
[[nodiscard]] std::optional<AttentionShape> attention_shape(const ModelSizes& sizes) noexcept;

/// Family name in messages: "gpt2", "llama", "mistral", "qwen2", "qwen3", "bert", "roberta", "wide-resnet".
[[nodiscard]] std::string_view family_name(const ModelSizes& sizes) noexcept;

/// Whether the model does masked language modelling; it cannot generate text.
[[nodiscard]] bool fills_masks(const ModelSizes& sizes) noexcept;
/// Whether the model does text classification; it cannot generate text.
[[nodiscard]] bool tells_classes(const ModelSizes& sizes) noexcept;
/// Whether samples are labelled images instead of tokens.
[[nodiscard]] bool reads_images(const ModelSizes& sizes) noexcept;
/// Whether positions have parameters, so the number of positions is fixed.
[[nodiscard]] bool learns_positions(const ModelSizes& sizes) noexcept;

/// Whether weights of matrices are stored [in, out] like GPT-2's, not [out, in].
[[nodiscard]] bool stores_inputs_first(const ModelSizes& sizes) noexcept;

/// Computation details that sizes do not show, for the user and for comparisons: equal texts compute identically.
[[nodiscard]] std::string computation_of(const ModelSizes& sizes);

/// Models by name: families with the user's sizes ("gpt", "llama", "mistral", "qwen2", "qwen3", "bert", "roberta",
/// "wide-resnet"), and presets ("gpt2-small", "llama2-7b", "bert-base").
struct NamedModel {
  std::string_view name;
  bool is_preset = false;
};
[[nodiscard]] std::vector<NamedModel> named_models();
/// None if the name is unknown.
[[nodiscard]] std::optional<ModelSizes> named_model(std::string_view name);
[[nodiscard]] bool is_preset(std::string_view name);

/// Derives sizes that were not given: number of heads (64 channels or more each) and the MLP's width.
void derive_sizes(ModelSizes& sizes, bool heads_given, bool ffn_size_given);

/// The same model with kv-heads and head-size as explicit numbers.
[[nodiscard]] ModelSizes with_all_sizes(ModelSizes sizes) noexcept;

/// Problem of invalid sizes, with a remedy, in the words of flags. None if they are valid.
[[nodiscard]] std::optional<std::string> size_problem(const ModelSizes& sizes);

/// Throws ErrorCode::usage for invalid sizes, for expressions that leave nothing to train or match nothing, and for
/// adapters of modules that the model does not have.
[[nodiscard]] Architecture make_model(const ModelSizes& sizes, const Tuning& tuning = {});

}  // namespace ranvier::models
