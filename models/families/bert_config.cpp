#include "models/families/bert_config.hpp"

#include "models/families/bert_sizes.hpp"
#include "models/text/labelled_source.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::array dropout_keys = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
constexpr float absent_dropout = 0.1f;   // transformers' own default
constexpr std::size_t usual_labels = 2;  // transformers' own default
constexpr std::size_t max_labels = 1 << 20;

/// Whether the weights belong to a text classifier.
bool tells_classes(const ConfigFile& config) {
  const boost::json::value* const names = config.find("architectures");
  const auto* const list = names == nullptr ? nullptr : names->if_array();
  return list != nullptr && std::any_of(list->begin(), list->end(), [](const auto& name) {
           return is_text(name, {"BertForSequenceClassification", "RobertaForSequenceClassification"});
         });
}

}  // namespace

bool is_bert_type(std::string_view model_type) { return model_type == "bert" || model_type == "roberta"; }

BertConfig read_bert_config(const ConfigFile& config) {
  config.require_unquantized();
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
  // BERT's positions do not depend on the padding token.
  options.padding_token = options.roberta ? config.size("pad_token_id", 1, 0) : 0;
  const int rows = config.size("max_position_embeddings", 512);
  if (rows - 1 <= options.padding_token && options.roberta)
    fail(ErrorCode::data,
         "{}: 'max_position_embeddings' leaves no positions: {}; positions start after 'pad_token_id' {}",
         config.path().string(), rows, options.padding_token);
  options.sequence_length = rows - options.first_position();
  if (const auto problem = size_problem(
          options,
          {.hidden = "'hidden_size'", .heads = "'num_attention_heads'", .padding_token = "'pad_token_id'"}))
    fail(ErrorCode::data, "{}: {}", config.path().string(), *problem);
  for (const char* key : dropout_keys) result.dropout[key] = config.rate(key, absent_dropout);
  if (tells_classes(config)) {
    options.classes = static_cast<int>(read_labels(config).size());
    if (options.classes < 2)
      fail(ErrorCode::data, "{}: 'id2label' has only one class (regression); use a model with two or more",
           config.path().string());
    config.require(
        "problem_type", [](const auto& value) { return is_text(value, {"single_label_classification"}); },
        "\"single_label_classification\"");
    if (config.find("classifier_dropout") != nullptr)
      result.dropout["classifier_dropout"] = config.rate("classifier_dropout", absent_dropout);
  }
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
  members.set("architectures", fmt::format("[\"{}For{}\"]", options.roberta ? "Roberta" : "Bert",
                                           options.classifies() ? "SequenceClassification" : "MaskedLM"));
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
                                   {"max_position_embeddings", options.position_rows()},
                                   {"type_vocab_size", options.types}})
    members.set(key, fmt::format("{}", value));
  for (const char* key : dropout_keys) members.set(key, fmt::format("{:.6g}", options.dropout));
  members.set_fp32();
  if (!options.classifies()) return members.json();
  if (members.has("classifier_dropout")) members.set("classifier_dropout", "null");  // as the others
  const std::string config = members.json();
  std::vector<std::string> labels = read_labels(ConfigFile(config, "config.json"));
  const auto known = static_cast<int>(labels.size());
  labels.resize(static_cast<std::size_t>(options.classes));
  for (int label = known; label < options.classes; ++label)
    labels[static_cast<std::size_t>(label)] = unnamed_label(label);
  return with_labels(config, labels);
}

std::vector<std::string> read_labels(const ConfigFile& config) {
  const boost::json::value* const names = config.find("id2label");
  if (names == nullptr) {
    const auto count = config.size("num_labels", static_cast<int>(usual_labels));
    std::vector<std::string> labels;
    for (int label = 0; label < std::min(count, static_cast<int>(max_labels)); ++label)
      labels.push_back(unnamed_label(label));
    return labels;
  }
  const auto* const object = names->if_object();
  constexpr const char* computed = "names of all classes by number, as in {\"0\": \"bad\", \"1\": \"good\"}";
  if (object == nullptr || object->empty() || object->size() > max_labels) config.refuse("id2label", computed);
  std::vector<std::string> labels;
  for (std::size_t label = 0; label < object->size(); ++label) {
    const auto* const name = object->if_contains(std::to_string(label));
    if (name == nullptr || !name->is_string()) config.refuse("id2label", computed);
    labels.emplace_back(name->get_string());
  }
  return labels;
}

std::string with_labels(const std::string& config, std::span<const std::string> labels) {
  boost::json::object names, numbers;
  for (std::size_t label = 0; label < labels.size(); ++label) {
    names[std::to_string(label)] = labels[label];
    numbers[labels[label]] = label;
  }
  JsonMembers members(config);
  members.set("id2label", boost::json::serialize(names));
  members.set("label2id", boost::json::serialize(numbers));
  members.set("problem_type", "\"single_label_classification\"");
  return members.json();
}

}  // namespace ranvier::models
