#include "models/families/model_config.hpp"

#include "models/families/bert_config.hpp"
#include "models/families/gpt_config.hpp"
#include "models/families/llama_config.hpp"
#include "models/families/resnet_config.hpp"
#include "models/weights/config_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/memory_map.hpp"

#include <utility>

namespace ranvier::models {
namespace {

ModelConfig from_gpt(GptConfig config) {
  return {.sizes = config.sizes, .dropout = std::move(config.dropout), .text = std::move(config.text)};
}

}  // namespace

std::optional<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const runtime::MemoryMap file(path);
  return parse_model_config({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

ModelConfig parse_model_config(std::string_view text, const std::filesystem::path& path) {
  const ConfigFile config(text, path);
  const std::string type = config.word("model_type");
  if (is_llama_type(type)) return {.sizes = read_llama_config(config), .dropout = {}, .text = config.text()};
  if (is_bert_type(type)) {
    BertConfig bert = read_bert_config(config);
    return {.sizes = bert.sizes, .dropout = std::move(bert.dropout), .text = config.text()};
  }
  if (is_resnet_type(type)) return {.sizes = read_resnet_config(config), .dropout = {}, .text = config.text()};
  if (!type.empty() && type != "gpt2")
    config.refuse("model_type", "the layers of gpt2, llama, mistral, qwen2, qwen3, bert, roberta or wide_resnet");
  return from_gpt(parse_gpt_config(text, path));
}

std::string model_config_json(const ModelSizes& sizes, const std::string& like) {
  if (const auto* const gpt = std::get_if<GptOptions>(&sizes)) return gpt_config_json(*gpt, like);
  if (const auto* const bert = std::get_if<BertOptions>(&sizes)) return bert_config_json(*bert, like);
  if (const auto* const resnet = std::get_if<ResnetOptions>(&sizes)) return resnet_config_json(*resnet, like);
  return llama_config_json(std::get<LlamaOptions>(sizes), like);
}

std::optional<StoredModel> stored_model(const Safetensors& weights, std::optional<int> heads) {
  const bool has_config = std::filesystem::exists(weights.path().parent_path() / "config.json");
  // A model with GPT-2's embedding may have other blocks.
  if (weights.find("wte.weight") != nullptr && (has_config || weights.find("h.0.ln_1.weight") != nullptr)) {
    StoredGpt gpt = stored_gpt(weights, heads);
    StoredModel stored{.sizes = gpt.sizes, .config = {}};
    if (gpt.config) stored.config = from_gpt(std::move(*gpt.config));
    return stored;
  }
  auto config = read_model_config(weights.path().parent_path());
  if (!config) {
    if (const auto resnet = stored_resnet(weights)) return StoredModel{.sizes = *resnet, .config = {}};
    return std::nullopt;
  }
  const std::string file = (weights.path().parent_path() / "config.json").string();
  const int said = value_of(config->sizes, Size::heads), layers = layers_of(config->sizes);
  if (heads && *heads != said)
    fail(ErrorCode::usage, "`heads` {} differs from {}: {}; remove `heads`", *heads, file, said);
  // A number so far, and each layer takes memory.
  if (static_cast<std::size_t>(layers) > weights.tensors().size())
    fail(ErrorCode::data, "{}: 'num_hidden_layers' is {}, but {} has only {} tensors; use files of one model", file,
         layers, weights.path().string(), weights.tensors().size());
  ModelSizes sizes = config->sizes;
  return StoredModel{.sizes = std::move(sizes), .config = std::move(config)};
}

}  // namespace ranvier::models
