#include "models/families/model.hpp"

#include "models/core/lora.hpp"
#include "models/core/size_checks.hpp"
#include "models/families/bert_sizes.hpp"
#include "models/families/gpt_sizes.hpp"
#include "models/families/llama_sizes.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace ranvier::models {
namespace {

using enum Size;

constexpr std::array size_names = {
    std::pair{layers, std::string_view("layers")},
    std::pair{hidden, std::string_view("hidden")},
    std::pair{heads, std::string_view("heads")},
    std::pair{kv_heads, std::string_view("kv-heads")},
    std::pair{head_size, std::string_view("head-size")},
    std::pair{ffn_size, std::string_view("ffn-size")},
    std::pair{vocab_size, std::string_view("vocab-size")},
    std::pair{sequence_length, std::string_view("sequence-length")},
    std::pair{window, std::string_view("window")},
    std::pair{tile, std::string_view("tile")},
    std::pair{width, std::string_view("width")},
    std::pair{image_size, std::string_view("image-size")},
    std::pair{classes, std::string_view("classes")},
};

/// Sizes that all text families have.
template <typename Options>
int* common_size(Options& options, Size which) noexcept {
  switch (which) {
    case layers:
      return &options.layers;
    case hidden:
      return &options.hidden;
    case heads:
      return &options.heads;
    case vocab_size:
      return &options.vocab_size;
    case sequence_length:
      return &options.sequence_length;
    case tile:
      return &options.tile;
    default:
      return nullptr;
  }
}

int* size_in(GptOptions& gpt, Size which) noexcept { return common_size(gpt, which); }

int* size_in(LlamaOptions& llama, Size which) noexcept {
  switch (which) {
    case kv_heads:
      return &llama.key_heads;
    case head_size:
      return &llama.head_size;
    case ffn_size:
      return &llama.inner;
    case window:
      return &llama.window;
    default:
      return common_size(llama, which);
  }
}

int* size_in(BertOptions& bert, Size which) noexcept {
  switch (which) {
    case ffn_size:
      return &bert.inner;
    case classes:
      return &bert.classes;
    default:
      return common_size(bert, which);
  }
}

int* size_in(ResnetOptions& resnet, Size which) noexcept {
  switch (which) {
    case hidden:
      return &resnet.channels;
    case width:
      return &resnet.width;
    case image_size:
      return &resnet.image_size;
    case classes:
      return &resnet.classes;
    default:
      return nullptr;
  }
}

constexpr GptOptions own_gpt{.layers = 6, .hidden = 384, .heads = 6, .vocab_size = 256, .sequence_length = 256};

/// LLaMA's inner width: two thirds of 4 C, rounded up to a multiple of 64.
int default_ffn_size(int hidden) {
  const std::int64_t wanted = (std::int64_t{hidden} * 8 / 3 + 63) / 64 * 64;
  return static_cast<int>(std::min<std::int64_t>(wanted, 1 << 30));
}

/// Number of heads: a divisor of the channels near hidden / 64.
int default_heads(int hidden) { return divisor_near(std::max(1, hidden / 64), hidden); }

Architecture make_family(const GptOptions& gpt, const Tuning& tuning) { return make_gpt(gpt, tuning); }
Architecture make_family(const LlamaOptions& llama, const Tuning& tuning) { return make_llama(llama, tuning); }
Architecture make_family(const BertOptions& bert, const Tuning& tuning) { return make_bert(bert, tuning); }
Architecture make_family(const ResnetOptions& resnet, const Tuning& tuning) { return make_resnet(resnet, tuning); }

}  // namespace

std::span<const std::pair<Size, std::string_view>> named_sizes() noexcept { return size_names; }

int* find_size(ModelSizes& sizes, Size which) noexcept {
  return std::visit([&](auto& family) { return size_in(family, which); }, sizes);
}

int value_of(const ModelSizes& sizes, Size which) noexcept {
  ModelSizes copy = sizes;
  const int* const field = find_size(copy, which);
  return field == nullptr ? 0 : *field;
}

std::array<int, ResnetOptions::rows>* find_blocks(ModelSizes& sizes) noexcept {
  auto* const resnet = std::get_if<ResnetOptions>(&sizes);
  return resnet == nullptr ? nullptr : &resnet->blocks;
}

int layers_of(const ModelSizes& sizes) noexcept {
  const auto* const resnet = std::get_if<ResnetOptions>(&sizes);
  return resnet == nullptr ? value_of(sizes, layers) : resnet->layers();
}

int* find_positions(ModelSizes& sizes) noexcept {
  if (auto* const bert = std::get_if<BertOptions>(&sizes)) return &bert->positions;
  auto* const gpt = std::get_if<GptOptions>(&sizes);
  return gpt == nullptr ? nullptr : &gpt->positions;
}

float* find_dropout(ModelSizes& sizes) noexcept {
  if (auto* const bert = std::get_if<BertOptions>(&sizes)) return &bert->dropout;
  auto* const gpt = std::get_if<GptOptions>(&sizes);
  return gpt == nullptr ? nullptr : &gpt->dropout;
}

float dropout_of(const ModelSizes& sizes) noexcept {
  ModelSizes copy = sizes;
  const float* const rate = find_dropout(copy);
  return rate == nullptr ? 0 : *rate;
}

void set_precision(ModelSizes& sizes, const Precision& precision) noexcept {
  std::visit([&](auto& family) { family.precision = precision; }, sizes);
}

void set_attention(ModelSizes& sizes, AttentionKernels kernels, bool fast_backward) noexcept {
  std::visit(
      [&](auto& family) {
        if constexpr (requires { family.attention; }) {
          family.attention = kernels;
          family.fast_attention_backward = fast_backward;
        }
      },
      sizes);
}

void set_targets(ModelSizes& sizes, int targets) noexcept {
  if (auto* const bert = std::get_if<BertOptions>(&sizes); bert != nullptr && !bert->classifies())
    bert->targets = targets;
}

std::optional<AttentionShape> attention_shape(const ModelSizes& sizes) noexcept {
  if (const auto* const llama = std::get_if<LlamaOptions>(&sizes))
    return AttentionShape{.positions = llama->sequence_length,
                          .heads = llama->heads,
                          .channels = llama->stored_head_size(),
                          .kernels = llama->attention,
                          .fast_backward = llama->fast_attention_backward,
                          .key_heads = llama->key_heads,
                          .window = llama->window};
  if (const auto* const bert = std::get_if<BertOptions>(&sizes))
    return AttentionShape{.positions = bert->sequence_length,
                          .heads = bert->heads,
                          .channels = bert->hidden / bert->heads,
                          .kernels = bert->attention,
                          .fast_backward = bert->fast_attention_backward,
                          .causal = false};
  if (const auto* const gpt = std::get_if<GptOptions>(&sizes))
    return AttentionShape{.positions = gpt->sequence_length,
                          .heads = gpt->heads,
                          .channels = gpt->hidden / gpt->heads,
                          .kernels = gpt->attention,
                          .fast_backward = gpt->fast_attention_backward};
  return std::nullopt;
}

std::string computation_of(const ModelSizes& sizes) {
  if (const auto* const bert = std::get_if<BertOptions>(&sizes))
    return fmt::format("{}, norm's epsilon {}, token types {}, positions from {} on", bert_family(*bert),
                       bert->norm_epsilon, bert->types, bert->first_position());
  if (reads_images(sizes)) return "wide-resnet";
  const auto* const llama = std::get_if<LlamaOptions>(&sizes);
  if (llama == nullptr) return "gpt2";
  const RopeScaling rope = llama->rope_scaling.value_or(RopeScaling());
  const char* const scaling = !llama->rope_scaling                     ? "none"
                              : rope.kind == RopeScaling::Kind::linear ? "linear"
                                                                       : "llama3";
  return fmt::format(
      "{}, norm's epsilon {}, rotary base {} scaled {} {}/{}/{}/{}, biases {}{}, head norms {}, tied {}",
      llama_family(*llama), llama->norm_epsilon, llama->rope_base, scaling, rope.factor, rope.low_frequency_factor,
      rope.high_frequency_factor, rope.original_positions, llama->qkv_bias, llama->out_bias, llama->qk_norm,
      llama->tied);
}

std::vector<NamedModel> named_models() {
  std::vector<NamedModel> names{{"gpt", false}};
  for (const std::string_view name : gpt_preset_names()) names.push_back({name, true});
  for (const NamedLlama& llama : named_llamas()) names.push_back({llama.name, llama.is_preset});
  for (const NamedBert& bert : named_berts()) names.push_back({bert.name, bert.is_preset});
  for (const NamedResnet& resnet : named_resnets()) names.push_back({resnet.name, resnet.is_preset});
  return names;
}

std::optional<ModelSizes> named_model(std::string_view name) {
  if (name == "gpt") return own_gpt;
  if (const auto gpt = gpt_preset(name)) return *gpt;
  for (const NamedLlama& llama : named_llamas())
    if (llama.name == name) return llama.sizes;
  for (const NamedBert& bert : named_berts())
    if (bert.name == name) return bert.sizes;
  for (const NamedResnet& resnet : named_resnets())
    if (resnet.name == name) return resnet.sizes;
  return std::nullopt;
}

bool is_preset(std::string_view name) {
  const auto names = named_models();
  return std::any_of(names.begin(), names.end(),
                     [&](const NamedModel& each) { return each.name == name && each.is_preset; });
}

void derive_sizes(ModelSizes& sizes, bool heads_given, bool ffn_size_given) {
  if (reads_images(sizes)) return;
  if (!heads_given) {
    const auto* const asked = std::get_if<LlamaOptions>(&sizes);
    const int heads_of_size =
        asked != nullptr && asked->head_size > 0 ? std::max(1, asked->hidden / asked->head_size) : 0;
    std::visit(
        [&](auto& family) {
          if constexpr (requires { family.heads; })
            family.heads = heads_of_size > 0 ? heads_of_size : default_heads(family.hidden);
        },
        sizes);
    if (auto* const llama = std::get_if<LlamaOptions>(&sizes); llama != nullptr && llama->key_heads > 0)
      llama->key_heads = divisor_near(llama->key_heads, llama->heads);
  }
  if (auto* const llama = std::get_if<LlamaOptions>(&sizes); llama != nullptr && !ffn_size_given)
    llama->inner = default_ffn_size(llama->hidden);
  if (auto* const bert = std::get_if<BertOptions>(&sizes); bert != nullptr && !ffn_size_given)
    bert->inner = static_cast<int>(std::min<std::int64_t>(4 * std::int64_t{bert->hidden}, 1 << 30));
}

ModelSizes with_all_sizes(ModelSizes sizes) noexcept {
  if (auto* const llama = std::get_if<LlamaOptions>(&sizes); llama != nullptr && llama->heads > 0) {
    llama->key_heads = llama->stored_key_heads();
    llama->head_size = llama->stored_head_size();
  }
  return sizes;
}

std::optional<std::string> size_problem(const ModelSizes& sizes) {
  if (const auto* const gpt = std::get_if<GptOptions>(&sizes))
    return size_problem(*gpt, {.layers = "`layers`",
                               .hidden = "`hidden`",
                               .heads = "`heads`",
                               .vocab_size = "`vocab_size`",
                               .sequence_length = "`sequence_length`",
                               .tile = "`tile`",
                               .dropout = "`dropout`"});
  if (const auto* const bert = std::get_if<BertOptions>(&sizes))
    return size_problem(*bert, {.layers = "`layers`",
                                .hidden = "`hidden`",
                                .heads = "`heads`",
                                .inner = "`ffn_size`",
                                .vocab_size = "`vocab_size`",
                                .sequence_length = "`sequence_length`",
                                .tile = "`tile`",
                                .dropout = "`dropout`",
                                .classes = "`classes`"});
  if (const auto* const resnet = std::get_if<ResnetOptions>(&sizes))
    return size_problem(*resnet, {.blocks = "`blocks`",
                                  .channels = "`hidden`",
                                  .width = "`width`",
                                  .image_size = "`image_size`",
                                  .classes = "`classes`"});
  return size_problem(std::get<LlamaOptions>(sizes), {.layers = "`layers`",
                                                      .hidden = "`hidden`",
                                                      .heads = "`heads`",
                                                      .key_heads = "`kv_heads`",
                                                      .head_size = "`head_size`",
                                                      .inner = "`ffn_size`",
                                                      .vocab_size = "`vocab_size`",
                                                      .sequence_length = "`sequence_length`",
                                                      .window = "`window`",
                                                      .tile = "`tile`"});
}

Architecture make_model(const ModelSizes& sizes, const Tuning& tuning) {
  if (tuning.lora && reads_images(sizes)) {
    const std::string& origin = tuning.lora->origin;
    fail(ErrorCode::usage, "{}: models of the family {} do not support adapters; {}",
         origin.empty() ? "`lora_rank`" : origin, family_name(sizes),
         origin.empty() ? "use a text model, or `train` REGEX" : "use the weights of their base model");
  }
  Architecture model = std::visit([&](const auto& family) { return make_family(family, tuning); }, sizes);
  if (tuning.lora) {
    expect_targets(model, *tuning.lora);
    expect_whole(model, *tuning.lora, tells_classes(sizes));
  }
  expect_trained(model, tuning);
  return model;
}

}  // namespace ranvier::models
