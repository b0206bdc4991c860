#include "models/families/llama.hpp"

#include "models/families/family_config.hpp"
#include "models/modules/language_model.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace ranvier::models {
namespace {

// Settings of the families' versions. LLaMA 1 and 2: Touvron et al. 2023.
constexpr LlamaOptions llama_1{.norm_epsilon = 1e-6f};
constexpr LlamaOptions llama_2{.sequence_length = 4096};
constexpr LlamaOptions llama_3{.vocab_size = 128256, .sequence_length = 8192, .rope_base = 500000};
constexpr LlamaOptions mistral{.sequence_length = 8192, .window = 4096};
constexpr LlamaOptions qwen_2(int vocab_size = 151936) {
  return {
      .vocab_size = vocab_size, .sequence_length = 4096, .norm_epsilon = 1e-6f, .rope_base = 1e6, .qkv_bias = true};
}
constexpr LlamaOptions qwen_3{.head_size = 128,
                              .vocab_size = 151936,
                              .sequence_length = 4096,
                              .norm_epsilon = 1e-6f,
                              .rope_base = 1e6,
                              .qk_norm = true};
/// With a context of 4096 tokens.
constexpr LlamaOptions phi_3{.vocab_size = 32064, .sequence_length = 4096, .window = 2047, .fused = true};

/// The version with a model's sizes; 0 key heads: as many as heads.
constexpr LlamaOptions sized_llama(LlamaOptions llama, int layers, int hidden, int heads, int key_heads, int inner,
                                   bool tied = false) {
  llama.layers = layers;
  llama.hidden = hidden;
  llama.heads = heads;
  llama.key_heads = key_heads;
  llama.inner = inner;
  llama.tied = tied;
  return llama;
}

/// A small model for bytes.
constexpr LlamaOptions small_llama(LlamaOptions llama = {}) {
  llama.vocab_size = llama.sequence_length = 256;
  return sized_llama(llama, 6, 384, 6, 0, 1024);
}

constexpr LlamaOptions with_scaling(LlamaOptions llama, double factor) {
  llama.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::llama3, .factor = factor};
  return llama;
}

namespace json = boost::json;

/// A model type, with the defaults of keys that its configuration may omit.
struct Type {
  std::string_view name;   ///< model_type
  std::string_view model;  ///< class in transformers
  int key_heads = 0;       ///< 0: as many as heads
  int head_size = 0;       ///< 0: hidden / heads
  int positions = 2048;
  double norm_epsilon = 1e-6;
  std::optional<int> window;   ///< default of sliding_window, 0: no window; none: the key is ignored
  bool windows_begin = false;  ///< uses a window only with use_sliding_window, from layer max_window_layers on
};
constexpr std::array types = {
    Type{.name = "llama", .model = "LlamaForCausalLM"},
    Type{.name = "mistral", .model = "MistralForCausalLM", .key_heads = 8, .positions = 131072, .window = 4096},
    Type{.name = "qwen2",
         .model = "Qwen2ForCausalLM",
         .key_heads = 32,
         .positions = 32768,
         .window = 4096,
         .windows_begin = true},
    Type{.name = "qwen3",
         .model = "Qwen3ForCausalLM",
         .key_heads = 32,
         .head_size = 128,
         .positions = 32768,
         .window = 4096,
         .windows_begin = true},
    Type{.name = "phi3", .model = "Phi3ForCausalLM", .positions = 4096, .norm_epsilon = 1e-5, .window = 0},
};

bool is_one(const json::value& value) { return value == 1 || value == 1.0; }

const Type& type_of(std::string_view name) {
  return *std::find_if(types.begin(), types.end(), [&](const Type& type) { return type.name == name; });
}

/// None if frequencies follow from the base only.
std::optional<RopeScaling> read_scaling(const ConfigFile* scaling) {
  if (scaling == nullptr) return std::nullopt;
  scaling->require("partial_rotary_factor", is_one, "1");
  const char* const key = scaling->has("rope_type") ? "rope_type" : "type";
  const std::string kind = scaling->word(key);
  if (kind.empty() || kind == "default") return std::nullopt;
  RopeScaling rope;
  if (kind == "linear") {
    rope.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    rope.kind = RopeScaling::Kind::llama3;
    rope.low_frequency_factor = scaling->number("low_freq_factor");
    rope.high_frequency_factor = scaling->number("high_freq_factor");
    rope.original_positions = scaling->number("original_max_position_embeddings");
    if (!(rope.high_frequency_factor > rope.low_frequency_factor))
      scaling->refuse("high_freq_factor", "more than low_freq_factor");
  } else {
    scaling->refuse(key, "the rotary frequencies default, linear or llama3");
  }
  rope.factor = scaling->number("factor");
  return rope;
}

/// Older versions of transformers write rope_scaling and rope_theta, newer ones rope_parameters with both.
void read_rope(const ConfigFile& config, LlamaOptions& options) {
  constexpr double usual_base = 10000;
  const auto older = config.object("rope_scaling"), newer = config.object("rope_parameters");
  if (newer && newer->has_objects()) config.refuse("rope_parameters", "the same rotary frequencies in all layers");
  options.rope_base = config.number("rope_theta", usual_base);
  options.rope_scaling = read_scaling(older ? &*older : nullptr);
  if (older) options.rope_base = older->number("rope_theta", options.rope_base);
  if (!newer) return;
  const double base = newer->number("rope_theta", options.rope_base);
  const auto scaling = read_scaling(&*newer);
  const bool same_base = base == options.rope_base || !(older || config.find("rope_theta") != nullptr);
  if (!same_base || (older && scaling != options.rope_scaling))
    fail(ErrorCode::data,
         "{}: 'rope_parameters' and '{}' have different rotary frequencies; remove the entry that the weights were "
         "not trained with",
         config.path().string(), older ? "rope_scaling" : "rope_theta");
  options.rope_base = base;
  options.rope_scaling = scaling;
}

/// Attention window in tokens, the same in all layers; 0: no window.
int read_window(const ConfigFile& config, const Type& type, int layers) {
  constexpr int first_window_layer = 28;  // Qwen's default
  const bool is_off = config.has("sliding_window") && config.find("sliding_window") == nullptr;
  if (!type.window || is_off || (type.windows_begin && !config.flag("use_sliding_window", false))) return 0;
  const int window = config.size("sliding_window", *type.window);
  if (window == 0) return 0;
  if (const json::value* const kinds = config.find("layer_types")) {  // newer than max_window_layers
    const auto all = [&](std::string_view word) {
      return kinds->is_array() && std::all_of(kinds->as_array().begin(), kinds->as_array().end(),
                                              [&](const json::value& kind) { return is_text(kind, {word}); });
    };
    if (all("full_attention")) return 0;
    if (!all("sliding_attention")) config.refuse("layer_types", "the same attention in all layers");
    return window;
  }
  if (!type.windows_begin) return window;
  const int first = config.size("max_window_layers", first_window_layer, 0);
  if (first > 0 && first < layers) config.refuse("max_window_layers", "the same attention in all layers");
  return first == 0 ? window : 0;
}

/// Number as JSON, with a decimal point or exponent, as transformers requires for floats.
std::string real_json(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string rope_json(const RopeScaling& rope) {
  if (rope.kind == RopeScaling::Kind::linear)
    return fmt::format(R"({{"rope_type": "linear", "factor": {}}})", real_json(rope.factor));
  return fmt::format(R"({{"rope_type": "llama3", "factor": {}, "low_freq_factor": {}, "high_freq_factor": {}, )"
                     R"("original_max_position_embeddings": {:.0f}}})",
                     real_json(rope.factor), real_json(rope.low_frequency_factor),
                     real_json(rope.high_frequency_factor), rope.original_positions);
}

std::string flag_json(bool value) { return value ? "true" : "false"; }

}  // namespace

// Sizes.

std::span<const SizeField<LlamaOptions>> LlamaOptions::sizes() {
  static constexpr SizeField<LlamaOptions> all[] = {
      {Size::layers, &LlamaOptions::layers, "num_hidden_layers"},
      {Size::hidden, &LlamaOptions::hidden, "hidden_size"},
      {Size::heads, &LlamaOptions::heads, "num_attention_heads"},
      {Size::kv_heads, &LlamaOptions::key_heads, "num_key_value_heads", 0},
      {Size::head_size, &LlamaOptions::head_size, "head_dim", 0},
      {Size::ffn_size, &LlamaOptions::inner, "intermediate_size"},
      {Size::vocab_size, &LlamaOptions::vocab_size, "vocab_size"},
      {Size::sequence_length, &LlamaOptions::sequence_length, "max_position_embeddings"},
      {Size::window, &LlamaOptions::window, "", 0},
      {Size::tile, &LlamaOptions::tile},
  };
  return all;
}

std::span<const NamedSizes<LlamaOptions>> LlamaOptions::named() {
  static constexpr NamedSizes<LlamaOptions> all[] = {
      {"llama", false, small_llama()},
      {"mistral", false, small_llama({.window = 128})},
      {"qwen2", false, small_llama({.qkv_bias = true})},
      {"qwen3", false, small_llama({.qk_norm = true})},
      {"phi3", false, small_llama({.fused = true})},
      {"llama-7b", true, sized_llama(llama_1, 32, 4096, 32, 0, 11008)},
      {"llama-13b", true, sized_llama(llama_1, 40, 5120, 40, 0, 13824)},
      {"llama-30b", true, sized_llama(llama_1, 60, 6656, 52, 0, 17920)},
      {"llama-65b", true, sized_llama(llama_1, 80, 8192, 64, 0, 22016)},
      {"llama2-7b", true, sized_llama(llama_2, 32, 4096, 32, 0, 11008)},
      {"llama2-13b", true, sized_llama(llama_2, 40, 5120, 40, 0, 13824)},
      {"llama2-70b", true, sized_llama(llama_2, 80, 8192, 64, 8, 28672)},
      {"llama3-8b", true, sized_llama(llama_3, 32, 4096, 32, 8, 14336)},
      {"llama3-70b", true, sized_llama(llama_3, 80, 8192, 64, 8, 28672)},
      {"llama3.1-8b", true, with_scaling(sized_llama(llama_3, 32, 4096, 32, 8, 14336), 8)},
      {"llama3.2-1b", true, with_scaling(sized_llama(llama_3, 16, 2048, 32, 8, 8192, true), 32)},
      {"llama3.2-3b", true, with_scaling(sized_llama(llama_3, 28, 3072, 24, 8, 8192, true), 32)},
      {"mistral-7b", true, sized_llama(mistral, 32, 4096, 32, 8, 14336)},
      {"qwen2-0.5b", true, sized_llama(qwen_2(), 24, 896, 14, 2, 4864, true)},
      {"qwen2-1.5b", true, sized_llama(qwen_2(), 28, 1536, 12, 2, 8960, true)},
      {"qwen2-7b", true, sized_llama(qwen_2(152064), 28, 3584, 28, 4, 18944)},
      {"qwen3-0.6b", true, sized_llama(qwen_3, 28, 1024, 16, 8, 3072, true)},
      {"qwen3-1.7b", true, sized_llama(qwen_3, 28, 2048, 16, 8, 6144, true)},
      {"qwen3-4b", true, sized_llama(qwen_3, 36, 2560, 32, 8, 9728, true)},
      {"qwen3-8b", true, sized_llama(qwen_3, 36, 4096, 32, 8, 12288)},
      {"phi3-mini", true, sized_llama(phi_3, 32, 3072, 32, 0, 8192)},
  };
  return all;
}

std::string_view LlamaOptions::family() const {
  if (fused) return "phi3";
  if (qk_norm) return "qwen3";
  if (qkv_bias && !out_bias) return "qwen2";
  return window > 0 ? "mistral" : "llama";
}

std::optional<std::string> LlamaOptions::problem(const SizeNames& names) const {
  constexpr int max_heads = 1 << 20;  // the number of channels still fits 32 bits
  if (heads > max_heads)
    return fmt::format("{} is too large: {}; use at most {}", names("heads"), heads, max_heads);
  if (head_size == 0 && hidden % heads != 0)
    return fmt::format("{} {} does not divide {} {}; use a divisor such as {}, or add {}", names("heads"), heads,
                       names("hidden"), hidden, divisor_near(heads, hidden), names("head_size"));
  if (stored_head_size() % 2 != 0)
    return fmt::format("rotary embeddings need an even number of channels per head: {}; use an even {}",
                       stored_head_size(), names("head_size"));
  if (stored_head_size() > RotaryFrequencies::max_channels)
    return fmt::format("heads have too many channels for rotary embeddings: {}, at most {}; use a smaller {}",
                       stored_head_size(), RotaryFrequencies::max_channels, names("head_size"));
  if (auto problem = divisor_problem({names("kv_heads"), stored_key_heads()}, {names("heads"), heads}))
    return problem;
  const std::int64_t qkv =
      (std::int64_t{heads} + 2 * std::int64_t{stored_key_heads()}) * std::int64_t{stored_head_size()};
  return tile_problem(names("tile"), tile,
                      {{fmt::format("{} {}", names("hidden"), hidden), hidden},
                       {fmt::format("{} {}", names("ffn_size"), inner), inner},
                       {fmt::format("the {} channels of queries, keys and values", qkv), qkv}});
}

void LlamaOptions::derive(bool heads_given, bool ffn_size_given) {
  if (!heads_given) {
    heads = head_size > 0 ? std::max(1, hidden / head_size) : default_heads(hidden);
    if (key_heads > 0) key_heads = divisor_near(key_heads, heads);
  }
  if (!ffn_size_given) inner = inner_width(hidden, 8, 3, 64);
}

void LlamaOptions::set_all_sizes() {
  key_heads = stored_key_heads();
  if (heads > 0) head_size = stored_head_size();
}

std::optional<AdapterModules> LlamaOptions::adapters() const {
  return fused ? AdapterModules{{"qkv_proj"}} : AdapterModules{{"q_proj", "v_proj"}};
}

std::string LlamaOptions::computation() const {
  const RopeScaling rope = rope_scaling.value_or(RopeScaling());
  const char* const scaling = !rope_scaling ? "none" : rope.kind == RopeScaling::Kind::linear ? "linear" : "llama3";
  return fmt::format(
      "{}, norm's epsilon {}, rotary base {} scaled {} {}/{}/{}/{}, biases {}{}, head norms {}, tied {}", family(),
      norm_epsilon, rope_base, scaling, rope.factor, rope.low_frequency_factor, rope.high_frequency_factor,
      rope.original_positions, qkv_bias, out_bias, qk_norm, tied);
}

// config.json.

FamilyConfig<LlamaOptions> LlamaOptions::read(const ConfigFile& config) {
  const std::string name = config.word("model_type");
  const Type& type = type_of(name);
  LlamaOptions options;
  options.layers = config.size("num_hidden_layers");
  options.hidden = config.size("hidden_size");
  options.heads = config.size("num_attention_heads");
  const bool says_keys = config.has("num_key_value_heads") || type.key_heads == 0;
  options.key_heads = config.size("num_key_value_heads", says_keys ? options.heads : type.key_heads);
  options.head_size = config.size("head_dim", type.head_size > 0 ? type.head_size : options.hidden / options.heads);
  options.inner = config.size("intermediate_size");
  options.vocab_size = config.size("vocab_size");
  options.sequence_length = config.size("max_position_embeddings", type.positions);
  options.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", type.norm_epsilon));
  options.initializer_range = static_cast<float>(config.number("initializer_range", 0.02));
  options.tied = config.flag("tie_word_embeddings", false);
  options.qk_norm = name == "qwen3";
  options.fused = name == "phi3";
  const bool bias = name != "mistral" && !options.fused && config.flag("attention_bias", false);
  options.qkv_bias = bias || name == "qwen2";
  options.out_bias = bias && name != "qwen2";
  read_rope(config, options);
  options.window = read_window(config, type, options.layers);
  expect_sizes(options, config);
  config.require("hidden_act", [](const auto& value) { return is_text(value, {"silu", "swish"}); }, "silu");
  config.require("is_causal", true, "causal attention");
  config.require("mlp_bias", false, "no biases in the MLP");
  const auto is_zero = [](const auto& value) { return value == 0 || value == 0.0; };
  config.require("attention_dropout", is_zero, "no dropout");
  if (options.fused)  // other types ignore these keys
    for (const char* key : {"resid_pdrop", "embd_pdrop"}) config.require(key, is_zero, "no dropout");
  config.require("partial_rotary_factor", is_one, "1");
  return {options};
}

std::string LlamaOptions::config_json(const std::string& like) const {
  constexpr std::string_view from_nothing = R"({
    "architectures": [], "model_type": "", "num_hidden_layers": 0, "hidden_size": 0, "num_attention_heads": 0,
    "num_key_value_heads": 0, "head_dim": 0, "intermediate_size": 0, "vocab_size": 0, "max_position_embeddings": 0,
    "hidden_act": "silu", "rms_norm_eps": 0, "rope_theta": 0, "rope_scaling": null, "attention_bias": false,
    "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": false, "use_cache": true,
    "bos_token_id": null, "eos_token_id": null, "pad_token_id": null, "torch_dtype": "float32"})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  const Type& type = type_of(family());
  LlamaOptions saved = *this;
  saved.set_all_sizes();
  if (like.empty()) {
    members.set("architectures", fmt::format("[\"{}\"]", type.model));
    members.set("model_type", fmt::format("\"{}\"", type.name));
    members.set("rope_theta", real_json(rope_base));
    if (rope_scaling) members.set("rope_scaling", rope_json(*rope_scaling));
    members.set("attention_bias", flag_json(out_bias));
    members.set("rms_norm_eps", fmt::format("{:.6g}", norm_epsilon));
    members.set("initializer_range", fmt::format("{:.6g}", initializer_range));
    if (type.name == "mistral" || window > 0)
      members.set("sliding_window", window > 0 ? fmt::format("{}", window) : "null");
    if (type.windows_begin && window > 0) {
      members.set("use_sliding_window", "true");
      members.set("max_window_layers", "0");
    }
  } else {
    // Training with shorter sequences does not reduce the model's maximum.
    saved.sequence_length = std::max(sequence_length, read(ConfigFile(like, "config.json")).sizes.sequence_length);
  }
  set_sizes(members, saved);
  members.set("tie_word_embeddings", flag_json(tied));
  members.set_fp32();
  return members.json();
}

// Layers.

LanguageModel LlamaOptions::language_model() const {
  const auto C = static_cast<std::size_t>(hidden), F = static_cast<std::size_t>(inner);
  const auto D = static_cast<std::size_t>(stored_head_size()), tiles = static_cast<std::size_t>(tile);
  const std::size_t queries = static_cast<std::size_t>(heads) * D;
  const std::size_t keys = static_cast<std::size_t>(stored_key_heads()) * D;
  const Initializer normal{Initializer::Kind::normal, initializer_range};
  const NormShape norm{.channels = C, .epsilon = norm_epsilon, .kind = NormKind::rms};
  const auto table = [&](const char* name) {
    return TokenTable({.name = name,
                       .tokens = static_cast<std::size_t>(vocab_size),
                       .channels = C,
                       .tiles = tiles,
                       .initializer = normal});
  };
  const auto block = [=, options = *this](int index, UnitBuilder& builder) -> TransformerBlockOptions {
    const std::string name = fmt::format("model.layers.{}", index), self = name + ".self_attn", mlp = name + ".mlp";
    std::vector<LinearOptions::Tensor> qkv{
        {self + ".q_proj", queries}, {self + ".k_proj", keys}, {self + ".v_proj", keys}};
    if (options.fused) qkv = {{self + ".qkv_proj", queries + 2 * keys}};
    return {.name = name,
            .index = index,
            .norm_1 = name + ".input_layernorm",
            .norm_2 = name + ".post_attention_layernorm",
            .norm = norm,
            .qkv = {.tensors = std::move(qkv),
                    .in = C,
                    .bias = options.qkv_bias,
                    .initializer = normal,
                    .cut = {builder.add_tiles(self + ".qkv_proj", tiles)}},
            .out = {.tensors = {{self + ".o_proj", C}},
                    .in = queries,
                    .bias = options.out_bias,
                    .initializer = normal,
                    .cut = {builder.add_tiles(self + ".o_proj", tiles)}},
            .attention_name = self,
            .attention = {.shape = {.positions = options.sequence_length,
                                    .heads = options.heads,
                                    .channels = options.stored_head_size(),
                                    .kernels = options.attention,
                                    .fast_backward = options.fast_attention_backward,
                                    .key_heads = options.key_heads,
                                    .window = options.window},
                          .rotary = RotaryOptions{options.rope_base, options.rope_scaling},
                          .head_norms = options.qk_norm,
                          .norm_epsilon = options.norm_epsilon},
            .mlp = {.gate = MlpOptions::Matrix{mlp + (options.fused ? ".gate_up_proj" : ".gate_proj"), normal},
                    .up = {mlp + (options.fused ? ".gate_up_proj" : ".up_proj"), normal},
                    .down = {mlp + ".down_proj", normal},
                    .channels = C,
                    .inner = F,
                    .tiles = builder.add_tiles(mlp, tiles)}};
  };
  const TokenTable words = table("model.embed_tokens");
  return {.name = fmt::format("{} {} × {}, {} heads", family(), layers, hidden, heads),
          .positions = sequence_length,
          .precision = precision,
          .embedding = {.table = words},
          .blocks = layers,
          .block = block,
          .head = LanguageHeadOptions{
              .table = tied ? words : table("lm_head"), .norm_name = "model.norm", .norm = norm}};
}

}  // namespace ranvier::models
