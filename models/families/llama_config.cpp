#include "models/families/llama_config.hpp"

#include "models/families/llama_sizes.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ranvier::models {
namespace {

namespace json = boost::json;

/// A model type, with the defaults of keys that its configuration may omit.
struct Type {
  std::string_view name;   ///< model_type
  std::string_view model;  ///< class in transformers
  int key_heads = 0;       ///< 0: as many as heads
  int head_size = 0;       ///< 0: hidden / heads
  int positions = 2048;
  int window = 0;              ///< default of sliding_window; 0: no window, the key is ignored
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
};

bool is_one(const json::value& value) { return value == 1 || value == 1.0; }

const Type* find_type(std::string_view name) {
  for (const Type& type : types)
    if (type.name == name) return &type;
  return nullptr;
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
  if (type.window == 0 || is_off || (type.windows_begin && !config.flag("use_sliding_window", false))) return 0;
  const int window = config.size("sliding_window", type.window);
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

bool is_llama_type(std::string_view model_type) { return find_type(model_type) != nullptr; }

LlamaOptions read_llama_config(const ConfigFile& config) {
  config.require_unquantized();
  const std::string name = config.word("model_type");
  const Type* const type = find_type(name);
  if (type == nullptr) config.refuse("model_type", "the layers of llama, mistral, qwen2 or qwen3");
  LlamaOptions options;
  options.layers = config.size("num_hidden_layers");
  options.hidden = config.size("hidden_size");
  options.heads = config.size("num_attention_heads");
  const bool says_keys = config.has("num_key_value_heads") || type->key_heads == 0;
  options.key_heads = config.size("num_key_value_heads", says_keys ? options.heads : type->key_heads);
  options.head_size =
      config.size("head_dim", type->head_size > 0 ? type->head_size : options.hidden / options.heads);
  options.inner = config.size("intermediate_size");
  options.vocab_size = config.size("vocab_size");
  options.sequence_length = config.size("max_position_embeddings", type->positions);
  options.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 1e-6));
  options.initializer_range = static_cast<float>(config.number("initializer_range", 0.02));
  options.tied = config.flag("tie_word_embeddings", false);
  options.qk_norm = name == "qwen3";
  const bool bias = name != "mistral" && config.flag("attention_bias", false);
  options.qkv_bias = bias || name == "qwen2";
  options.out_bias = bias && name != "qwen2";
  read_rope(config, options);
  options.window = read_window(config, *type, options.layers);
  if (const auto problem = size_problem(options, {.hidden = "'hidden_size'",
                                                  .heads = "'num_attention_heads'",
                                                  .key_heads = "'num_key_value_heads'",
                                                  .head_size = "'head_dim'"}))
    fail(ErrorCode::data, "{}: {}", config.path().string(), *problem);
  config.require("hidden_act", [](const auto& value) { return is_text(value, {"silu", "swish"}); }, "silu");
  config.require("is_causal", true, "causal attention");
  config.require("mlp_bias", false, "no biases in the MLP");
  config.require("attention_dropout", [](const auto& value) { return value == 0 || value == 0.0; }, "no dropout");
  config.require("partial_rotary_factor", is_one, "1");
  return options;
}

std::string llama_config_json(const LlamaOptions& options, const std::string& like) {
  constexpr std::string_view from_nothing = R"({
    "architectures": [], "model_type": "", "num_hidden_layers": 0, "hidden_size": 0, "num_attention_heads": 0,
    "num_key_value_heads": 0, "head_dim": 0, "intermediate_size": 0, "vocab_size": 0, "max_position_embeddings": 0,
    "hidden_act": "silu", "rms_norm_eps": 0, "rope_theta": 0, "rope_scaling": null, "attention_bias": false,
    "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": false, "use_cache": true,
    "bos_token_id": null, "eos_token_id": null, "pad_token_id": null, "torch_dtype": "float32"})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  const Type& type = *find_type(llama_family(options));
  int positions = options.sequence_length;
  if (like.empty()) {
    members.set("architectures", fmt::format("[\"{}\"]", type.model));
    members.set("model_type", fmt::format("\"{}\"", type.name));
    members.set("rope_theta", real_json(options.rope_base));
    if (options.rope_scaling) members.set("rope_scaling", rope_json(*options.rope_scaling));
    members.set("attention_bias", flag_json(options.out_bias));
    members.set("rms_norm_eps", fmt::format("{:.6g}", options.norm_epsilon));
    members.set("initializer_range", fmt::format("{:.6g}", options.initializer_range));
    if (type.name == "mistral" || options.window > 0)
      members.set("sliding_window", options.window > 0 ? fmt::format("{}", options.window) : "null");
    if (type.name != "mistral" && options.window > 0) {
      members.set("use_sliding_window", "true");
      members.set("max_window_layers", "0");
    }
  } else {
    // Training with shorter sequences does not reduce the model's maximum.
    positions = std::max(positions, read_llama_config(ConfigFile(like, "config.json")).sequence_length);
  }
  for (const auto& [key, value] : {std::pair{"num_hidden_layers", options.layers},
                                   {"hidden_size", options.hidden},
                                   {"num_attention_heads", options.heads},
                                   {"num_key_value_heads", options.stored_key_heads()},
                                   {"head_dim", options.stored_head_size()},
                                   {"intermediate_size", options.inner},
                                   {"vocab_size", options.vocab_size},
                                   {"max_position_embeddings", positions}})
    members.set(key, fmt::format("{}", value));
  members.set("tie_word_embeddings", flag_json(options.tied));
  members.set_fp32();
  return members.json();
}

}  // namespace ranvier::models
