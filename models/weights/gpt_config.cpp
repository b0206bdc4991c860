#include "models/weights/gpt_config.hpp"

#include "runtime/error.hpp"
#include "runtime/json_text.hpp"
#include "runtime/memory_map.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace ranvier::models {
namespace {

namespace json = boost::json;

constexpr std::size_t longest_config = 1 << 20;

/// A size of the model: its key in the file, and its flag.
struct Size {
  const char* key;
  const char* flag;
  int GptOptions::*field;
};

constexpr std::array sizes = {
    Size{"n_layer", "--layers", &GptOptions::layers},
    Size{"n_embd", "--hidden", &GptOptions::hidden},
    Size{"n_head", "--heads", &GptOptions::heads},
    Size{"vocab_size", "--vocab-size", &GptOptions::vocab_size},
    Size{"n_positions", "--sequence-length", &GptOptions::sequence_length},
};

class Config {
 public:
  explicit Config(std::filesystem::path path) : path_(std::move(path)) {
    const runtime::MemoryMap file(path_);
    const auto bytes = file.bytes();
    if (bytes.size() > longest_config)
      fail(ErrorCode::data, "{}: {} bytes are too many for a model's configuration", path_.string(), bytes.size());
    const json::value value =
        runtime::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path_.string());
    if (!value.is_object()) fail(ErrorCode::data, "{}: not a JSON object", path_.string());
    object_ = value.as_object();
  }

  [[nodiscard]] int size(const char* key) const {
    const json::value* const value = find(key);
    if (value == nullptr) fail(ErrorCode::data, "{}: '{}' is missing", path_.string(), key);
    if (!value->is_int64() || value->as_int64() < 1 || value->as_int64() > std::numeric_limits<int>::max())
      fail(ErrorCode::data, "{}: '{}' is {}: it must be a whole number from 1 on", path_.string(), key,
           text(*value));
    return static_cast<int>(value->as_int64());
  }

  /// Fails unless the key is absent, null, or has a value that `accepts`; `computed` says what that would be.
  template <typename Accepts>
  void require(const char* key, Accepts&& accepts, const std::string& computed) const {
    const json::value* const value = find(key);
    if (value == nullptr || accepts(*value)) return;
    fail(ErrorCode::data, "{}: '{}' is {}, and models are computed with {} here: these weights cannot be used",
         path_.string(), key, text(*value), computed);
  }

 private:
  /// Null also for keys that are there with the value null.
  [[nodiscard]] const json::value* find(const char* key) const {
    const json::value* const value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  [[nodiscard]] static std::string text(const json::value& value) { return json::serialize(value); }

  std::filesystem::path path_;
  json::object object_;
};

bool is_text(const json::value& value, std::initializer_list<std::string_view> texts) {
  if (!value.is_string()) return false;
  for (const auto each : texts)
    if (std::string_view(value.as_string()) == each) return true;
  return false;
}

const StoredTensor& matrix(const Safetensors& weights, const char* name) {
  const StoredTensor* const tensor = weights.find(name);
  if (tensor == nullptr)
    fail(ErrorCode::data, "{}: no tensor '{}': these are not the weights of a GPT-2", weights.path().string(),
         name);
  const auto& shape = tensor->shape;
  constexpr std::size_t most = 1 << 30;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > most || shape[1] > most)
    fail(ErrorCode::data, "{}: tensor '{}' has shape {}, which is not that of a GPT-2's table",
         weights.path().string(), name, shape_text(shape));
  return *tensor;
}

}  // namespace

std::optional<GptOptions> read_gpt_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Config config(path);
  config.require(
      "model_type", [](const auto& value) { return is_text(value, {"gpt2"}); }, "GPT-2's layers");
  GptOptions options;
  for (const Size& size : sizes) options.*size.field = config.size(size.key);
  if (options.hidden % options.heads != 0)
    fail(ErrorCode::data, "{}: 'n_embd' {} does not divide by 'n_head' {}", path.string(), options.hidden,
         options.heads);
  config.require(
      "activation_function",
      [](const auto& value) {
        return is_text(value, {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
      },
      "gelu_new");
  config.require(
      "n_inner", [&](const auto& value) { return value == json::value(4 * std::int64_t{options.hidden}); },
      fmt::format("{}, four times 'n_embd'", 4 * std::int64_t{options.hidden}));
  config.require(
      "layer_norm_epsilon",
      [](const auto& value) {
        return value.is_number() && std::abs(value.template to_number<double>() - 1e-5) < 1e-9;
      },
      "1e-5");
  config.require(
      "scale_attn_weights", [](const auto& value) { return value == json::value(true); }, "true");
  config.require(
      "scale_attn_by_inverse_layer_idx", [](const auto& value) { return value == json::value(false); }, "false");
  config.require(
      "tie_word_embeddings", [](const auto& value) { return value == json::value(true); }, "true");
  return options;
}

std::string gpt_config_json(const GptOptions& options) {
  const auto rate = static_cast<double>(options.dropout);
  return fmt::format(R"({{
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "n_layer": {},
  "n_embd": {},
  "n_head": {},
  "vocab_size": {},
  "n_positions": {},
  "n_inner": null,
  "activation_function": "gelu_new",
  "layer_norm_epsilon": 1e-05,
  "embd_pdrop": {:.6g},
  "attn_pdrop": {:.6g},
  "resid_pdrop": {:.6g},
  "initializer_range": 0.02,
  "scale_attn_weights": true,
  "tie_word_embeddings": true,
  "use_cache": true,
  "bos_token_id": null,
  "eos_token_id": null,
  "torch_dtype": "float32"
}}
)",
                     options.layers, options.hidden, options.heads, options.vocab_size, options.sequence_length,
                     rate, rate, rate);
}

GptOptions stored_gpt(const Safetensors& weights, std::optional<int> heads) {
  const std::string file = weights.path().string();
  GptOptions options;
  const auto& tokens = matrix(weights, "wte.weight").shape;
  const auto& positions = matrix(weights, "wpe.weight").shape;
  options.vocab_size = static_cast<int>(tokens[0]);
  options.hidden = static_cast<int>(tokens[1]);
  options.sequence_length = static_cast<int>(positions[0]);
  options.layers = 0;
  while (weights.find(fmt::format("h.{}.ln_1.weight", options.layers)) != nullptr) ++options.layers;
  if (options.layers == 0)
    fail(ErrorCode::data, "{}: no tensor 'h.0.ln_1.weight': these are not the weights of a GPT-2", file);

  const auto folder = weights.path().parent_path();
  const auto config = read_gpt_config(folder);
  if (config) {
    for (const Size& size : sizes) {
      if (size.field == &GptOptions::heads || options.*size.field == (*config).*size.field) continue;
      fail(ErrorCode::data, "{}: '{}' is {}, but the tensors of {} have {}: they are of different models",
           (folder / "config.json").string(), size.key, (*config).*size.field, file, options.*size.field);
    }
    if (heads && *heads != config->heads)
      fail(ErrorCode::usage, "--heads {}: {} says {}: leave the flag out", *heads,
           (folder / "config.json").string(), config->heads);
    options.heads = config->heads;
    return options;
  }
  if (!heads)
    fail(ErrorCode::usage,
         "{}: the shapes of its tensors do not show the number of attention heads, and there is no config.json "
         "beside "
         "it: give --heads",
         file);
  if (options.hidden % *heads != 0)
    fail(ErrorCode::usage,
         "--heads {} does not divide the {} channels of {}: give the heads that it was trained with", *heads,
         options.hidden, file);
  options.heads = *heads;
  return options;
}

}  // namespace ranvier::models
