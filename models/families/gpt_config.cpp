#include "models/families/gpt_config.hpp"

#include "models/families/gpt_sizes.hpp"
#include "models/weights/config_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/memory_map.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <tuple>

namespace ranvier::models {
namespace {

namespace json = boost::json;

/// A size of the model: its key in the file, and its flag.
struct SizeKey {
  const char* key;
  const char* flag;
  int GptOptions::* field;
};

constexpr std::array sizes = {
    SizeKey{"n_layer", "`layers`", &GptOptions::layers},
    SizeKey{"n_embd", "`hidden`", &GptOptions::hidden},
    SizeKey{"n_head", "`heads`", &GptOptions::heads},
    SizeKey{"vocab_size", "`vocab_size`", &GptOptions::vocab_size},
    SizeKey{"n_positions", "`sequence_length`", &GptOptions::sequence_length},
};

constexpr std::array dropout_keys = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};
constexpr float absent_dropout = 0.1f;  // transformers' own default

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

std::optional<GptConfig> read_gpt_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const runtime::MemoryMap file(path);
  return parse_gpt_config({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

GptConfig parse_gpt_config(std::string_view text, const std::filesystem::path& path) {
  const ConfigFile config(text, path);
  config.require_unquantized();
  config.require("model_type", [](const auto& value) { return is_text(value, {"gpt2"}); }, "GPT-2's layers");
  GptConfig result{.text = config.text()};
  GptOptions& options = result.sizes;
  for (const SizeKey& size : sizes) options.*size.field = config.size(size.key);
  for (const char* key : dropout_keys) result.dropout[key] = config.rate(key, absent_dropout);
  if (const auto problem = size_problem(options, {.hidden = "'n_embd'", .heads = "'n_head'"}))
    fail(ErrorCode::data, "{}: {}", path.string(), *problem);
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
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("model_type", "\"gpt2\"");
  GptOptions saved = options;
  saved.sequence_length = options.position_rows();
  for (const SizeKey& size : sizes) members.set(size.key, fmt::format("{}", saved.*size.field));
  for (const char* key : dropout_keys)
    members.set(key, fmt::format("{:.6g}", static_cast<double>(options.dropout)));
  if (members.has("n_ctx")) members.set("n_ctx", fmt::format("{}", saved.sequence_length));  // n_positions of old
  members.set_fp32();
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
           "{}: 'n_layer' is {}, but {} also has tensor 'h.{}.ln_1.weight'; use files of one model, or "
           "add `ignore_tensors` REGEX",
           config_file, said.layers, file, said.layers);
    for (const SizeKey& size : sizes) {
      if (size.field == &GptOptions::heads || options.*size.field == said.*size.field) continue;
      fail(ErrorCode::data, "{}: '{}' is {}, but the tensors of {} have {}; use files of one model", config_file,
           size.key, said.*size.field, file, options.*size.field);
    }
    if (heads && *heads != said.heads)
      fail(ErrorCode::usage, "`heads` {} differs from {}: {}; remove `heads`", *heads, config_file, said.heads);
    options.heads = said.heads;
    return stored;
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
  return stored;
}

}  // namespace ranvier::models
