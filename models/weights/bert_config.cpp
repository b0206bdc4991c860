#include "models/weights/bert_config.hpp"

#include "models/bert_sizes.hpp"
#include "runtime/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::array dropout_keys = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
constexpr float absent_dropout = 0.1f;  // transformers' own default

}  // namespace

bool is_bert_type(std::string_view model_type) { return model_type == "bert" || model_type == "roberta"; }

BertConfig read_bert_config(const ConfigFile& config) {
  const std::string type = config.word("model_type");
  if (!is_bert_type(type)) config.refuse("model_type", "the layers of bert or roberta");
  BertConfig result;
  BertOptions& options = result.sizes;
  options.roberta = type == "roberta";
  options.layers = config.size("num_hidden_layers");
  options.hidden = config.size("hidden_size");
  options.heads = config.size("num_attention_heads");
  options.inner = config.size("intermediate_size");
  options.vocab_size = config.size("vocab_size");
  options.types = config.size("type_vocab_size", 2);
  options.norm_epsilon = static_cast<float>(config.number("layer_norm_eps", 1e-12));
  options.initializer_range = static_cast<float>(config.number("initializer_range", 0.02));
  // Of a BERT it decides nothing here.
  options.padding_token = options.roberta ? config.size("pad_token_id", 1, 0) : 0;
  const int rows = config.size("max_position_embeddings", 512);
  if (rows - 1 <= options.padding_token && options.roberta)
    fail(ErrorCode::data,
         "{}: 'max_position_embeddings' is {}: positions begin after 'pad_token_id' {}, so none are left",
         config.path().string(), rows, options.padding_token);
  options.sequence_length = rows - options.first_position();
  if (const auto problem = size_problem(
          options,
          {.hidden = "'hidden_size'", .heads = "'num_attention_heads'", .padding_token = "'pad_token_id'"}))
    fail(ErrorCode::data, "{}: {}", config.path().string(), *problem);
  for (const char* key : dropout_keys) result.dropout[key] = config.rate(key, absent_dropout);
  config.require("hidden_act", [](const auto& value) { return is_text(value, {"gelu"}); }, "gelu");
  config.require(
      "position_embedding_type", [](const auto& value) { return is_text(value, {"absolute"}); }, "absolute");
  config.require("is_decoder", false, "false");
  config.require("add_cross_attention", false, "false");
  config.require("tie_word_embeddings", true, "true");
  config.require(
      "pruned_heads", [](const auto& value) { return value.is_object() && value.as_object().empty(); },
      "all heads");
  return result;
}

std::string bert_config_json(const BertOptions& options, const std::string& like) {
  constexpr std::string_view from_nothing = R"({
    "architectures": [], "model_type": "", "num_hidden_layers": 0, "hidden_size": 0, "num_attention_heads": 0,
    "intermediate_size": 0, "vocab_size": 0, "max_position_embeddings": 0, "type_vocab_size": 0,
    "hidden_act": "gelu", "layer_norm_eps": 0, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
    "initializer_range": 0.02, "position_embedding_type": "absolute", "pad_token_id": 0, "bos_token_id": null,
    "eos_token_id": null, "torch_dtype": "float32"})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("architectures", options.roberta ? "[\"RobertaForMaskedLM\"]" : "[\"BertForMaskedLM\"]");
  if (like.empty()) {
    members.set("model_type", fmt::format("\"{}\"", bert_family(options)));
    members.set("layer_norm_eps", fmt::format("{:.6g}", options.norm_epsilon));
    members.set("initializer_range", fmt::format("{:.6g}", options.initializer_range));
    members.set("pad_token_id", fmt::format("{}", options.padding_token));
  }
  for (const auto& [key, value] : {std::pair{"num_hidden_layers", options.layers},
                                   {"hidden_size", options.hidden},
                                   {"num_attention_heads", options.heads},
                                   {"intermediate_size", options.inner},
                                   {"vocab_size", options.vocab_size},
                                   {"max_position_embeddings", options.first_position() + options.sequence_length},
                                   {"type_vocab_size", options.types}})
    members.set(key, fmt::format("{}", value));
  for (const char* key : dropout_keys) members.set(key, fmt::format("{:.6g}", options.dropout));
  for (const char* key : {"torch_dtype", "dtype"})
    if (members.has(key)) members.set(key, "\"float32\"");
  return members.json();
}

}  // namespace ranvier::models
