#include "models/weights/gpt_config.hpp"

#include "models/gpt_sizes.hpp"
#include "runtime/error.hpp"
#include "runtime/json_text.hpp"
#include "runtime/memory_map.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

namespace json = boost::json;

constexpr std::size_t longest_config = 1 << 20;

/// A size of the model: its key in the file, and its flag.
struct Size {
  const char* key;
  const char* flag;
  int GptOptions::* field;
};

constexpr std::array sizes = {
    Size{"n_layer", "--layers", &GptOptions::layers},
    Size{"n_embd", "--hidden", &GptOptions::hidden},
    Size{"n_head", "--heads", &GptOptions::heads},
    Size{"vocab_size", "--vocab-size", &GptOptions::vocab_size},
    Size{"n_positions", "--sequence-length", &GptOptions::sequence_length},
};

constexpr std::array dropout_keys = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};
constexpr double absent_dropout = 0.1;  // transformers' own default

class Config {
 public:
  explicit Config(std::filesystem::path path) : path_(std::move(path)) {
    const runtime::MemoryMap file(path_);
    const auto bytes = file.bytes();
    if (bytes.size() > longest_config)
      fail(ErrorCode::data, "{}: {} bytes are too many for a model's configuration", path_.string(), bytes.size());
    text_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const json::value value = runtime::parse_json(text_, path_.string());
    if (!value.is_object()) fail(ErrorCode::data, "{}: not a JSON object", path_.string());
    object_ = value.as_object();
  }

  [[nodiscard]] const std::string& whole() const { return text_; }

  [[nodiscard]] int size(const char* key) const {
    const json::value* const value = find(key);
    if (value == nullptr) fail(ErrorCode::data, "{}: '{}' is missing", path_.string(), key);
    if (!value->is_int64() || value->as_int64() < 1 || value->as_int64() > std::numeric_limits<int>::max())
      fail(ErrorCode::data, "{}: '{}' is {}: it must be a whole number from 1 on", path_.string(), key,
           text(*value));
    return static_cast<int>(value->as_int64());
  }

  /// A share of values that are dropped.
  [[nodiscard]] float rate(const char* key) const {
    const json::value* const value = find(key);
    const auto rate = static_cast<float>(value == nullptr     ? absent_dropout
                                         : value->is_number() ? value->to_number<double>()
                                                              : -1.0);
    if (!(rate >= 0 && rate < 1))
      fail(ErrorCode::data, "{}: '{}' is {}: it must be a number from 0 to 1 (excluded)", path_.string(), key,
           text(*value));
    return rate;
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
  std::string text_;
  json::object object_;
};

/// Keys and values of a JSON object in their order, the values as they are written. `text` is known to be JSON.
class Members {
 public:
  explicit Members(std::string_view text) : text_(text) {
    at_ = text_.find('{') + 1;
    for (skip_blanks(); text_.at(at_) != '}'; skip_blanks()) {
      const std::string_view key = take_value();
      skip_blanks();
      ++at_;  // ':'
      skip_blanks();
      const json::value name = json::parse({key.data(), key.size()});
      set(std::string(name.as_string()), std::string(take_value()));
      skip_blanks();
      if (text_.at(at_) == ',') ++at_;
    }
  }

  [[nodiscard]] bool has(const std::string& key) const { return places_.contains(key); }

  /// In its place, or at the end.
  void set(const std::string& key, std::string value) {
    const auto [place, is_new] = places_.emplace(key, members_.size());
    if (is_new) {
      members_.emplace_back(key, std::move(value));
    } else {
      members_[place->second].second = std::move(value);
    }
  }

  [[nodiscard]] std::string json() const {
    std::string all;
    for (const auto& [key, value] : members_)
      all += fmt::format("{}\n  {}: {}", all.empty() ? "{" : ",", json::serialize(json::string(key)), value);
    return all + "\n}\n";
  }

 private:
  void skip_blanks() { at_ = text_.find_first_not_of(" \t\r\n", at_); }
  void skip_string() {
    for (++at_; text_.at(at_) != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    ++at_;
  }
  std::string_view take_value() {
    const std::size_t begin = at_;
    int depth = 0;
    do {
      const char c = text_.at(at_);
      if (c == '"') {
        skip_string();
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at_;
    } while (depth > 0 || std::string_view(" \t\r\n,:}").find(text_.at(at_)) == std::string_view::npos);
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::string, std::string>> members_;
  std::map<std::string, std::size_t> places_;  // of keys
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
    fail(ErrorCode::data, "{}: no tensor 'h.{}.ln_1.weight'{}", weights.path().string(), block,
         block == 0 ? ": these are not the weights of a GPT-2" : fmt::format(", but '{}'", of_last->name));
  }
  return last + 1;
}

}  // namespace

std::optional<GptConfig> read_gpt_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Config config(path);
  config.require("model_type", [](const auto& value) { return is_text(value, {"gpt2"}); }, "GPT-2's layers");
  GptConfig result{.text = config.whole()};
  GptOptions& options = result.sizes;
  for (const Size& size : sizes) options.*size.field = config.size(size.key);
  for (const char* key : dropout_keys) result.dropout[key] = config.rate(key);
  if (const auto problem = size_problem(options, {.hidden = "'n_embd'", .heads = "'n_head'"}))
    fail(ErrorCode::data, "{}: {}", path.string(), *problem);
  config.require(
      "activation_function",
      [](const auto& value) { return is_text(value, {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}); }, "gelu_new");
  config.require(
      "n_inner", [&](const auto& value) { return value == json::value(4 * std::int64_t{options.hidden}); },
      fmt::format("{}, four times 'n_embd'", 4 * std::int64_t{options.hidden}));
  config.require(
      "layer_norm_epsilon",
      [](const auto& value) {
        return value.is_number() && std::abs(value.template to_number<double>() - 1e-5) < 1e-9;
      },
      "1e-5");
  config.require("scale_attn_weights", [](const auto& value) { return value == json::value(true); }, "true");
  config.require(
      "scale_attn_by_inverse_layer_idx", [](const auto& value) { return value == json::value(false); }, "false");
  config.require("tie_word_embeddings", [](const auto& value) { return value == json::value(true); }, "true");
  config.require("add_cross_attention", [](const auto& value) { return value == json::value(false); }, "false");
  config.require(
      "pruned_heads", [](const auto& value) { return value.is_object() && value.as_object().empty(); },
      "all heads");
  return result;
}

std::string gpt_config_json(const GptOptions& options, const std::string& like) {
  constexpr std::string_view from_nothing = R"({
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_layer": 0, "n_embd": 0, "n_head": 0, "vocab_size": 0, "n_positions": 0, "n_inner": null,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
    "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0, "initializer_range": 0.02,
    "scale_attn_weights": true, "tie_word_embeddings": true, "use_cache": true,
    "bos_token_id": null, "eos_token_id": null, "torch_dtype": "float32"})";
  Members members(like.empty() ? from_nothing : std::string_view(like));
  members.set("model_type", "\"gpt2\"");
  for (const Size& size : sizes) members.set(size.key, fmt::format("{}", options.*size.field));
  for (const char* key : dropout_keys)
    members.set(key, fmt::format("{:.6g}", static_cast<double>(options.dropout)));
  if (members.has("n_ctx")) members.set("n_ctx", fmt::format("{}", options.sequence_length));  // n_positions of old
  for (const char* key : {"torch_dtype", "dtype"})
    if (members.has(key)) members.set(key, "\"float32\"");
  return members.json();
}

StoredGpt stored_gpt(const Safetensors& weights, std::optional<int> heads) {
  const std::string file = weights.path().string();
  StoredGpt stored;
  GptOptions& options = stored.sizes;
  const auto& tokens = matrix(weights, "wte.weight").shape;
  const auto& positions = matrix(weights, "wpe.weight").shape;
  options.vocab_size = static_cast<int>(tokens[0]);
  options.hidden = static_cast<int>(tokens[1]);
  options.sequence_length = static_cast<int>(positions[0]);
  options.layers = blocks_of(weights);

  const auto folder = weights.path().parent_path();
  const std::string config_file = (folder / "config.json").string();
  stored.config = read_gpt_config(folder);
  if (stored.config) {
    const GptOptions& said = stored.config->sizes;
    if (said.layers < options.layers)
      fail(ErrorCode::data,
           "{}: 'n_layer' is {}, but {} has a tensor 'h.{}.ln_1.weight', too: they are of different models, or "
           "leave tensors out by --ignore-tensors",
           config_file, said.layers, file, said.layers);
    for (const Size& size : sizes) {
      if (size.field == &GptOptions::heads || options.*size.field == said.*size.field) continue;
      fail(ErrorCode::data, "{}: '{}' is {}, but the tensors of {} have {}: they are of different models",
           config_file, size.key, said.*size.field, file, options.*size.field);
    }
    if (heads && *heads != said.heads)
      fail(ErrorCode::usage, "--heads {}: {} says {}: leave the flag out", *heads, config_file, said.heads);
    options.heads = said.heads;
    return stored;
  }
  if (!heads)
    fail(ErrorCode::usage,
         "{}: the shapes of its tensors do not show the number of attention heads, and there is no config.json "
         "beside it: give --heads",
         file);
  options.heads = *heads;
  if (size_problem(options))
    fail(ErrorCode::usage,
         "--heads {} does not divide the {} channels of {}: give the heads that it was trained with", *heads,
         options.hidden, file);
  return stored;
}

}  // namespace ranvier::models
