// A model of any family by its sizes: what flags, presets and config.json come to, and what it is made of. Whoever
// reads them knows no family; a new one is an alternative of ModelSizes and an entry in model.cpp. Pure; any thread.
#pragma once

#include "models/bert.hpp"
#include "models/gpt.hpp"
#include "models/llama.hpp"
#include "models/resnet.hpp"
#include "models/tuning.hpp"

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

/// What people may choose about a model, one by one.
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

/// All of them by the words that flags have for them: "layers", "kv-heads".
[[nodiscard]] std::span<const std::pair<Size, std::string_view>> named_sizes() noexcept;

/// The field; null where the family has none.
[[nodiscard]] int* find_size(ModelSizes& sizes, Size which) noexcept;
/// Its value; 0 where the family has none.
[[nodiscard]] int value_of(const ModelSizes& sizes, Size which) noexcept;
/// Blocks of each row of a residual network; null where the family has no such rows.
[[nodiscard]] std::array<int, ResnetOptions::rows>* find_blocks(ModelSizes& sizes) noexcept;
/// Blocks of a transformer, or all layers of a residual network: a pipeline has at most so many stages.
[[nodiscard]] int layers_of(const ModelSizes& sizes) noexcept;

/// How many positions have parameters, of which sequence_length are trained; null where none has.
[[nodiscard]] int* find_positions(ModelSizes& sizes) noexcept;

/// Share of values dropped in training; null where the family drops none.
[[nodiscard]] float* find_dropout(ModelSizes& sizes) noexcept;
[[nodiscard]] float dropout_of(const ModelSizes& sizes) noexcept;

void set_precision(ModelSizes& sizes, const Precision& precision) noexcept;
/// Whose kernels compute attention on a GPU; see GptOptions.
void set_attention(ModelSizes& sizes, AttentionKernels kernels, bool fast_backward) noexcept;
/// So many positions of a sample have a target at most; nothing where every position has one (fills_masks()).
void set_targets(ModelSizes& sizes, int targets) noexcept;
/// Of one sample, for whoever asks which kernels suit it; none of a family without attention.
[[nodiscard]] std::optional<AttentionShape> attention_shape(const ModelSizes& sizes) noexcept;

/// As messages name it: "gpt2", "llama", "mistral", "qwen2", "qwen3", "bert", "roberta", "wide-resnet".
[[nodiscard]] std::string_view family_name(const ModelSizes& sizes) noexcept;

/// Whether it learns to find tokens that are masked, from both sides, and not the next one: it writes no text.
[[nodiscard]] bool fills_masks(const ModelSizes& sizes) noexcept;
/// Whether it learns which class a text is of: it writes none either.
[[nodiscard]] bool tells_classes(const ModelSizes& sizes) noexcept;
/// Whether samples are images with a class, and not tokens.
[[nodiscard]] bool reads_images(const ModelSizes& sizes) noexcept;
/// Whether positions have parameters, so that a model has as many as it was made with.
[[nodiscard]] bool learns_positions(const ModelSizes& sizes) noexcept;

/// Whether the weights of its products are stored [in, out], as GPT-2's, and not [out, in].
[[nodiscard]] bool stores_inputs_first(const ModelSizes& sizes) noexcept;

/// What decides how a model computes and no size says, for people and for comparing: equal texts compute alike.
[[nodiscard]] std::string computation_of(const ModelSizes& sizes);

/// Models by name: those of a family with sizes of one's own to begin with ("gpt", "llama", "mistral", "qwen2",
/// "qwen3", "bert", "roberta", "wide-resnet"), and presets ("gpt2-small", "llama2-7b", "bert-base").
struct NamedModel {
  std::string_view name;
  bool is_preset = false;
};
[[nodiscard]] std::vector<NamedModel> named_models();
/// Empty if there is no such name.
[[nodiscard]] std::optional<ModelSizes> named_model(std::string_view name);
[[nodiscard]] bool is_preset(std::string_view name);

/// Sets what nobody gave and other sizes decide: heads of 64 channels or more, the MLP's width.
void derive_sizes(ModelSizes& sizes, bool heads_given, bool ffn_size_given);

/// The same model without sizes that are left to others: kv-heads and head-size by their numbers.
[[nodiscard]] ModelSizes with_all_sizes(ModelSizes sizes) noexcept;

/// What is wrong with sizes that make no model, and what to choose, in the words of flags. None: nothing is.
[[nodiscard]] std::optional<std::string> size_problem(const ModelSizes& sizes);

/// Throws ErrorCode::usage for sizes that make no model, for expressions that leave nothing to train or match nothing,
/// and for adapters of what the model does not have.
[[nodiscard]] Architecture make_model(const ModelSizes& sizes, const Tuning& tuning = {});

}  // namespace ranvier::models
