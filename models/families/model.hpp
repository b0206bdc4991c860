// A model of any family by its sizes, from flags, presets or config.json. Callers need not know the family: each answer
// comes from the family's struct (family.hpp). This is the only list of families. Pure; any thread.
#pragma once

#include "models/families/bert.hpp"
#include "models/families/gpt.hpp"
#include "models/families/llama.hpp"
#include "models/families/resnet.hpp"
#include "models/weights/safetensors.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ranvier::models {

/// Sizes of a model, and with them its family.
using ModelSizes = std::variant<GptOptions, LlamaOptions, BertOptions, ResnetOptions>;

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
[[nodiscard]] std::optional<AttentionShape> attention_shape(const ModelSizes& sizes);

/// Family name in messages: "gpt2", "mistral", "roberta", "wide-resnet".
[[nodiscard]] std::string_view family_name(const ModelSizes& sizes) noexcept;

[[nodiscard]] Task task_of(const ModelSizes& sizes) noexcept;
/// Whether the model does masked language modelling; it cannot generate text.
[[nodiscard]] inline bool fills_masks(const ModelSizes& sizes) noexcept {
  return task_of(sizes) == Task::masked_tokens;
}
/// Whether the model does text classification; it cannot generate text.
[[nodiscard]] inline bool tells_classes(const ModelSizes& sizes) noexcept {
  return task_of(sizes) == Task::text_classes;
}
/// Whether samples are labelled images instead of tokens.
[[nodiscard]] inline bool reads_images(const ModelSizes& sizes) noexcept { return task_of(sizes) == Task::images; }
/// Whether positions have parameters, so the number of positions is fixed.
[[nodiscard]] bool learns_positions(const ModelSizes& sizes) noexcept;

/// Whether weights of matrices are stored [in, out] like GPT-2's, not [out, in].
[[nodiscard]] bool stores_inputs_first(const ModelSizes& sizes) noexcept;

/// Modules that LoRA adapts by default; none if the family has no adapters.
[[nodiscard]] std::optional<AdapterModules> default_adapters(const ModelSizes& sizes);

/// Computation details that sizes do not show, for the user and for comparisons: equal texts compute identically.
[[nodiscard]] std::string computation_of(const ModelSizes& sizes);

/// Models by name: families with the user's sizes ("gpt", "llama", …, "wide-resnet"), and presets ("gpt2-small",
/// "llama2-7b", "bert-base").
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

/// Problem of invalid sizes, with a remedy, naming fields. None if they are valid.
[[nodiscard]] std::optional<std::string> size_problem(const ModelSizes& sizes);

/// Throws ErrorCode::usage for invalid sizes, for expressions that leave nothing to train or match nothing, and for
/// adapters of modules that the model does not have.
[[nodiscard]] Architecture make_model(const ModelSizes& sizes, const Tuning& tuning = {});

/// The same model for Decoder (generation/decoder.hpp), without dropout and tiles. Throws ErrorCode::usage for invalid
/// sizes, ErrorCode::internal for a masked language model, a text classifier or an image model.
[[nodiscard]] LanguageModel decoder_model(const ModelSizes& sizes);

// config.json

struct ModelConfig {
  ModelSizes sizes;                      ///< the sequence length is the model's maximum
  std::map<std::string, float> dropout;  ///< rates by key; empty: the family has no dropout
  std::string text;                      ///< content of the file
};

/// Reads `folder`/config.json; none if it does not exist. Throws ErrorCode::io if it cannot be read, ErrorCode::data,
/// naming file and key, if it is damaged or unsupported.
[[nodiscard]] std::optional<ModelConfig> read_model_config(const std::filesystem::path& folder);

/// Parses the content of a file; messages name `path`.
[[nodiscard]] ModelConfig parse_model_config(std::string_view text, const std::filesystem::path& path);

/// The config.json for transformers' class of that family with fp32 weights. `like` is ModelConfig::text of the
/// original model, whose other keys are kept; empty: none.
[[nodiscard]] std::string model_config_json(const ModelSizes& sizes, const std::string& like = {});

struct StoredModel {
  ModelSizes sizes;
  std::optional<ModelConfig> config;  ///< none: no config.json
};

/// The model of these weights, from config.json or the shapes of tensors; `heads` is for a GPT-2 without config.json.
/// None if neither identifies it. Throws ErrorCode::data, naming the contradiction, if tensors and config belong to
/// different models, ErrorCode::usage for a wrong or missing number of heads, and the errors of read_model_config().
[[nodiscard]] std::optional<StoredModel> stored_model(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models
