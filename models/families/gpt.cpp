#include "models/families/gpt.hpp"

#include "models/families/family_config.hpp"
#include "models/modules/language_model.hpp"
#include "models/weights/safetensors.hpp"

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <tuple>
#include <utility>

namespace ranvier::models {
namespace {

constexpr GptOptions sized(int layers, int hidden, int heads, int vocab_size, int sequence_length) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .vocab_size = vocab_size,
          .sequence_length = sequence_length};
}

constexpr std::array gpt_dropout_keys = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};

const StoredTensor& matrix(const Safetensors& weights, const char* name) {
  const StoredTensor* const tensor = weights.find(name);
  if (tensor == nullptr)
    fail(ErrorCode::data, "{}: tensor '{}' is missing; use the weights of a GPT-2", weights.path().string(), name);
  const auto& shape = tensor->shape;
  constexpr std::size_t most = 1 << 30;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > most || shape[1] > most)
    fail(ErrorCode::data, "{}: tensor '{}' has shape {}, unlike a GPT-2 embedding; use the weights of a GPT-2",
         weights.path().string(), name, shape_text(shape));
  return *tensor;
}

/// Blocks are numbered by their tensors, without a gap.
int blocks_of(const Safetensors& weights) {
  int last = 0;
  const StoredTensor* of_last = nullptr;
  for (const StoredTensor& tensor : weights.tensors()) {
    std::string_view name = tensor.name;
    if (name.starts_with(stored_prefix)) name.remove_prefix(stored_prefix.size());
    int block = 0;
    if (!name.starts_with("h.")) continue;
    const char* const digits = name.data() + 2;
    const auto [end, error] = std::from_chars(digits, name.data() + name.size(), block);
    if (error != std::errc{} || end == name.data() + name.size() || *end != '.' || block < last) continue;
    last = block;
    of_last = &tensor;
  }
  for (int block = 0; block <= last; ++block) {
    if (weights.find(fmt::format("h.{}.ln_1.weight", block)) != nullptr) continue;
    fail(ErrorCode::data, "{}: tensor 'h.{}.ln_1.weight' is missing{}", weights.path().string(), block,
         block == 0 ? "; use the weights of a GPT-2" : fmt::format(", but '{}' exists", of_last->name));
  }
  return last + 1;
}

}  // namespace

// Sizes.

std::span<const SizeField<GptOptions>> GptOptions::sizes() {
  static constexpr SizeField<GptOptions> all[] = {
      {Size::layers, &GptOptions::layers, "n_layer"},
      {Size::hidden, &GptOptions::hidden, "n_embd"},
      {Size::heads, &GptOptions::heads, "n_head"},
      {Size::vocab_size, &GptOptions::vocab_size, "vocab_size"},
      {Size::sequence_length, &GptOptions::sequence_length, "n_positions"},
      {Size::tile, &GptOptions::tile},
  };
  return all;
}

std::span<const NamedSizes<GptOptions>> GptOptions::named() {
  static constexpr NamedSizes<GptOptions> all[] = {
      {"gpt", false, sized(6, 384, 6, 256, 256)},
      {"gpt2-small", true, sized(12, 768, 12, 50257, 1024)},
      {"gpt2-medium", true, sized(24, 1024, 16, 50257, 1024)},
      {"gpt2-large", true, sized(36, 1280, 20, 50257, 1024)},
      {"gpt2-xl", true, sized(48, 1600, 25, 50257, 1024)},
      {"gpt-7b", true, sized(32, 4096, 32, 50257, 2048)},
      {"gpt-12b", true, sized(48, 4512, 24, 51200, 512)},
      {"gpt-24b", true, sized(48, 6336, 36, 51200, 512)},
      {"gpt-50b", true, sized(96, 6528, 48, 51200, 512)},
      {"gpt-100b", true, sized(96, 9360, 60, 51200, 512)},
      {"gpt2-20b", true, sized(62, 5120, 40, 50265, 512)},
  };
  return all;
}

std::optional<std::string> GptOptions::problem(const SizeNames& names) const {
  const NamedSize whole{names("hidden"), hidden};
  if (auto problem = divisor_problem({names("heads"), heads}, whole)) return problem;
  return divisor_problem({names("tile"), tile}, whole);
}

void GptOptions::derive(bool heads_given, bool) {
  if (!heads_given) heads = default_heads(hidden);
}

// config.json and tensors.

FamilyConfig<GptOptions> GptOptions::read(const ConfigFile& config) {
  constexpr float absent_dropout = 0.1f;  // transformers' own default
  FamilyConfig<GptOptions> result;
  GptOptions& options = result.sizes;
  for (const auto& [size, field, key, least] : sizes())
    if (!key.empty()) options.*field = config.size(key);
  for (const char* key : gpt_dropout_keys) result.dropout[key] = config.rate(key, absent_dropout);
  expect_sizes(options, config);
  config.require(
      "activation_function",
      [](const auto& value) { return is_text(value, {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}); }, "gelu_new");
  config.require("n_inner", 4 * std::int64_t{options.hidden},
                 fmt::format("{}, four times 'n_embd'", 4 * std::int64_t{options.hidden}));
  config.require(
      "layer_norm_epsilon",
      [](const auto& value) {
        return value.is_number() && std::abs(value.template to_number<double>() - 1e-5) < 1e-9;
      },
      "1e-5");
  config.require("scale_attn_weights", true, "true");
  std::ignore = config.flag("reorder_and_upcast_attn", false);  // scores are fp32 in any case
  config.require("scale_attn_by_inverse_layer_idx", false, "false");
  config.require("tie_word_embeddings", true, "true");
  config.require("add_cross_attention", false, "false");
  config.require("pruned_heads", boost::json::object(), "all heads");
  return result;
}

std::string GptOptions::config_json(const std::string& like) const {
  constexpr std::string_view from_nothing = R"({
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_layer": 0, "n_embd": 0, "n_head": 0, "vocab_size": 0, "n_positions": 0, "n_inner": null,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
    "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0, "initializer_range": 0.02,
    "scale_attn_weights": true, "tie_word_embeddings": true, "use_cache": true,
    "bos_token_id": null, "eos_token_id": null, "torch_dtype": "float32"})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("model_type", "\"gpt2\"");
  GptOptions saved = *this;
  saved.sequence_length = position_rows();
  set_sizes(members, saved);
  for (const char* key : gpt_dropout_keys) members.set(key, fmt::format("{:.6g}", static_cast<double>(dropout)));
  if (members.has("n_ctx")) members.set("n_ctx", fmt::format("{}", saved.sequence_length));  // n_positions of old
  members.set_fp32();
  return members.json();
}

std::optional<GptOptions> GptOptions::stored(const Safetensors& weights, const GptOptions* config,
                                             std::optional<int> heads) {
  // A model with GPT-2's embedding may have other blocks.
  if (weights.find("wte.weight") == nullptr || (config == nullptr && weights.find("h.0.ln_1.weight") == nullptr))
    return std::nullopt;
  const std::string file = weights.path().string();
  GptOptions options;
  const auto& tokens = matrix(weights, "wte.weight").shape;
  const auto& positions = matrix(weights, "wpe.weight").shape;
  options.vocab_size = static_cast<int>(tokens[0]);
  options.hidden = static_cast<int>(tokens[1]);
  options.sequence_length = static_cast<int>(positions[0]);
  options.layers = blocks_of(weights);
  if (config != nullptr) {
    const std::string config_file = (weights.path().parent_path() / "config.json").string();
    if (config->layers < options.layers)
      fail(ErrorCode::data,
           "{}: 'n_layer' is {}, but {} also has tensor 'h.{}.ln_1.weight'; use files of one model, or "
           "add `ignore_tensors` REGEX",
           config_file, config->layers, file, config->layers);
    for (const auto& [size, field, key, least] : sizes()) {
      if (key.empty() || size == Size::heads || options.*field == config->*field) continue;
      fail(ErrorCode::data, "{}: '{}' is {}, but the tensors of {} have {}; use files of one model", config_file,
           key, config->*field, file, options.*field);
    }
    if (heads && *heads != config->heads)
      fail(ErrorCode::usage, "`heads` {} differs from {}: {}; remove `heads`", *heads, config_file, config->heads);
    options.heads = config->heads;
    return options;
  }
  if (!heads)
    fail(ErrorCode::usage,
         "{}: the number of attention heads is unknown: config.json is missing next to the weights; add `heads` H",
         file);
  options.heads = *heads;
  if (size_problem(options))
    fail(ErrorCode::usage,
         "`heads` {} does not divide the {} channels of {}; use the number of heads of the model's training",
         *heads, options.hidden, file);
  return options;
}

// Layers.

LanguageModel GptOptions::language_model() const {
  const auto C = static_cast<std::size_t>(hidden), tiles = static_cast<std::size_t>(tile);
  const auto T = static_cast<std::size_t>(sequence_length), rows = static_cast<std::size_t>(position_rows());
  const Initializer normal{Initializer::Kind::normal, 0.02f};
  const Initializer residual{Initializer::Kind::normal, 0.02f / std::sqrt(2.0f * static_cast<float>(layers))};
  const NormShape norm{.channels = C};
  const TokenTable words({.name = "wte",
                          .tokens = static_cast<std::size_t>(vocab_size),
                          .channels = C,
                          .tiles = tiles,
                          .initializer = normal});
  const auto block = [=, options = *this](int index, UnitBuilder& builder) -> TransformerBlockOptions {
    const std::string name = fmt::format("h.{}", index);
    const auto linear = [&](const std::string& product, std::size_t outputs, const Initializer& initializer) {
      return LinearOptions{.tensors = {{product, outputs}},
                           .in = C,
                           .layout = LinearOptions::Layout::in_out,
                           .bias = true,
                           .initializer = initializer,
                           .cut = {builder.add_tiles(product, tiles)}};
    };
    return {.name = name,
            .index = index,
            .norm_1 = name + ".ln_1",
            .norm_2 = name + ".ln_2",
            .norm = norm,
            .qkv = linear(name + ".attn.c_attn", 3 * C, normal),
            .out = linear(name + ".attn.c_proj", C, residual),
            .attention_name = name + ".attn",
            .attention = {.shape = {.positions = options.sequence_length,
                                    .heads = options.heads,
                                    .channels = options.hidden / options.heads,
                                    .kernels = options.attention,
                                    .fast_backward = options.fast_attention_backward}},
            .mlp = {.up = {name + ".mlp.c_fc", normal},
                    .down = {name + ".mlp.c_proj", residual},
                    .channels = C,
                    .inner = 4 * C,
                    .bias = true,
                    .layout = LinearOptions::Layout::in_out,
                    .gelu = GeluForm::tanh,
                    .tiles = builder.add_tiles(name + ".mlp", tiles)},
            .dropout = options.dropout};
  };
  return {.name = fmt::format("gpt {} × {}, {} heads", layers, hidden, heads),
          .positions = sequence_length,
          .precision = precision,
          .embedding = {.table = words,
                        .unit = "wpe",
                        .positions = ParameterSpec{.name = "wpe.weight",
                                                   .shape = {rows, C},
                                                   .initializer = normal,
                                                   .decays = true,
                                                   .undecayed_end = (rows - T) * C},
                        .dropout = dropout},
          .blocks = layers,
          .block = block,
          .head = LanguageHeadOptions{.table = words, .norm_name = "ln_f", .norm = norm}};
}

}  // namespace ranvier::models
