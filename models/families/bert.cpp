#include "models/families/bert.hpp"

#include "models/families/family_config.hpp"
#include "models/modules/language_model.hpp"
#include "models/text/labelled_source.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace ranvier::models {
namespace {

constexpr BertOptions sized_bert(int layers, int hidden, int heads, int vocab_size = 30522) {
  return {.layers = layers, .hidden = hidden, .heads = heads, .inner = 4 * hidden, .vocab_size = vocab_size};
}

constexpr BertOptions sized_roberta(int layers, int hidden, int heads, int vocab_size = 50265) {
  BertOptions options = sized_bert(layers, hidden, heads, vocab_size);
  options.roberta = true;
  options.types = 1;
  options.padding_token = 1;
  options.norm_epsilon = 1e-5f;
  return options;
}

constexpr BertOptions own(BertOptions options) {
  options.sequence_length = 256;
  return options;
}

constexpr int mics_vocabulary = 32008;

constexpr std::array bert_dropout_keys = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
constexpr std::size_t usual_labels = 2;  // transformers' own default
constexpr std::size_t max_labels = 1 << 20;

/// Whether the weights belong to a text classifier.
bool names_classifier(const ConfigFile& config) {
  const boost::json::value* const names = config.find("architectures");
  const auto* const list = names == nullptr ? nullptr : names->if_array();
  return list != nullptr && std::any_of(list->begin(), list->end(), [](const auto& name) {
           return is_text(name, {"BertForSequenceClassification", "RobertaForSequenceClassification"});
         });
}

}  // namespace

// Sizes.

std::span<const SizeField<BertOptions>> BertOptions::sizes() {
  static constexpr SizeField<BertOptions> all[] = {
      {Size::layers, &BertOptions::layers, "num_hidden_layers"},
      {Size::hidden, &BertOptions::hidden, "hidden_size"},
      {Size::heads, &BertOptions::heads, "num_attention_heads"},
      {Size::ffn_size, &BertOptions::inner, "intermediate_size"},
      {Size::vocab_size, &BertOptions::vocab_size, "vocab_size"},
      {Size::sequence_length, &BertOptions::sequence_length, "max_position_embeddings"},
      {Size::tile, &BertOptions::tile},
      {Size::classes, &BertOptions::classes, "", std::numeric_limits<int>::min()},  // problem() bounds it
  };
  return all;
}

std::span<const NamedSizes<BertOptions>> BertOptions::named() {
  static constexpr NamedSizes<BertOptions> all[] = {
      {"bert", false, own(sized_bert(6, 384, 6, 256))},
      {"roberta", false, own(sized_roberta(6, 384, 6, 256))},
      {"bert-base", true, sized_bert(12, 768, 12)},
      {"bert-large", true, sized_bert(24, 1024, 16)},
      {"roberta-base", true, sized_roberta(12, 768, 12)},
      {"roberta-large", true, sized_roberta(24, 1024, 16)},
      {"bert-10b", true, sized_bert(127, 2560, 40, mics_vocabulary)},
      {"bert-15b", true, sized_bert(190, 2560, 40, mics_vocabulary)},
      {"bert-20b", true, sized_bert(64, 5120, 40, mics_vocabulary)},
      {"bert-50b", true, sized_bert(62, 8192, 64, mics_vocabulary)},
      {"roberta-20b", true, sized_roberta(62, 5120, 40)},
  };
  return all;
}

std::optional<std::string> BertOptions::problem(const SizeNames& names) const {
  constexpr int max_padding_token = 1 << 29;  // later positions still fit 32 bits
  if (auto problem = min_problem(1, {{names("type_vocab_size"), types}})) return problem;
  if (padding_token < 0 || padding_token > max_padding_token)
    return fmt::format("{} is out of range: {}; use 0 to {}", names("pad_token_id"), padding_token,
                       max_padding_token);
  if (classes != 0 && classes < 2)
    return fmt::format("{} is too small: {}; use at least 2, or 0 for masked language modelling", names("classes"),
                       classes);
  if (auto problem = divisor_problem({names("heads"), heads}, {names("hidden"), hidden})) return problem;
  if (targets < 0 || targets > sequence_length || (targets > 0 && classifies()))
    return fmt::format("{} is out of range: {}; use 0 to {}", names("targets"), targets,
                       classifies() ? 0 : sequence_length);
  return tile_problem(names("tile"), tile,
                      {{fmt::format("{} {}", names("hidden"), hidden), hidden},
                       {fmt::format("{} {}", names("ffn_size"), inner), inner}});
}

void BertOptions::derive(bool heads_given, bool ffn_size_given) {
  if (!heads_given) heads = default_heads(hidden);
  if (!ffn_size_given) inner = inner_width(hidden, 4);
}

std::string BertOptions::computation() const {
  return fmt::format("{}, norm's epsilon {}, token types {}, positions from {} on", family(), norm_epsilon, types,
                     first_position());
}

std::optional<AdapterModules> BertOptions::adapters() const {
  AdapterModules modules{{"query", "value"}};
  if (classifies()) modules.whole = {"classifier"};
  if (classifies() && !roberta) modules.whole.emplace_back("pooler");
  return modules;
}

// config.json.

FamilyConfig<BertOptions> BertOptions::read(const ConfigFile& config) {
  constexpr float absent_dropout = 0.1f;  // transformers' own default
  FamilyConfig<BertOptions> result;
  BertOptions& options = result.sizes;
  options.roberta = config.word("model_type") == "roberta";
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
  expect_sizes(options, config);
  for (const char* key : bert_dropout_keys) result.dropout[key] = config.rate(key, absent_dropout);
  if (names_classifier(config)) {
    options.classes = static_cast<int>(read_labels(config).size());
    if (options.classes < 2)
      fail(ErrorCode::data, "{}: 'id2label' has only one class (regression); use a model with two or more",
           config.path().string());
    config.require("problem_type", "single_label_classification", "\"single_label_classification\"");
    if (config.find("classifier_dropout") != nullptr)
      result.dropout["classifier_dropout"] = config.rate("classifier_dropout", absent_dropout);
  }
  config.require("hidden_act", "gelu", "gelu");
  config.require("position_embedding_type", "absolute", "absolute");
  config.require("is_decoder", false, "false");
  config.require("add_cross_attention", false, "false");
  config.require("tie_word_embeddings", true, "true");
  config.require("pruned_heads", boost::json::object(), "all heads");
  return result;
}

std::string BertOptions::config_json(const std::string& like) const {
  constexpr std::string_view from_nothing = R"({
    "architectures": [], "model_type": "", "num_hidden_layers": 0, "hidden_size": 0, "num_attention_heads": 0,
    "intermediate_size": 0, "vocab_size": 0, "max_position_embeddings": 0, "type_vocab_size": 0,
    "hidden_act": "gelu", "layer_norm_eps": 0, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
    "initializer_range": 0.02, "position_embedding_type": "absolute", "pad_token_id": 0, "bos_token_id": null,
    "eos_token_id": null, "torch_dtype": "float32"})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("architectures", fmt::format("[\"{}For{}\"]", roberta ? "Roberta" : "Bert",
                                           classifies() ? "SequenceClassification" : "MaskedLM"));
  if (like.empty()) {
    members.set("model_type", fmt::format("\"{}\"", family()));
    members.set("layer_norm_eps", fmt::format("{:.6g}", norm_epsilon));
    members.set("initializer_range", fmt::format("{:.6g}", initializer_range));
    members.set("pad_token_id", fmt::format("{}", padding_token));
  }
  BertOptions saved = *this;
  saved.sequence_length = position_rows();
  set_sizes(members, saved);
  members.set("type_vocab_size", fmt::format("{}", types));
  for (const char* key : bert_dropout_keys) members.set(key, fmt::format("{:.6g}", dropout));
  members.set_fp32();
  if (!classifies()) return members.json();
  if (members.has("classifier_dropout")) members.set("classifier_dropout", "null");  // as the others
  const std::string config = members.json();
  std::vector<std::string> labels = read_labels(ConfigFile(config, "config.json"));
  const auto known = static_cast<int>(labels.size());
  labels.resize(static_cast<std::size_t>(classes));
  for (int label = known; label < classes; ++label) labels[static_cast<std::size_t>(label)] = unnamed_label(label);
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

// Layers.

LanguageModel BertOptions::language_model() const {
  const auto C = static_cast<std::size_t>(hidden), F = static_cast<std::size_t>(inner);
  const auto tiles = static_cast<std::size_t>(tile);
  const std::string prefix = roberta ? "roberta." : "bert.", embeddings = prefix + "embeddings";
  const Initializer normal{Initializer::Kind::normal, initializer_range};
  const NormShape norm{.channels = C, .epsilon = norm_epsilon};
  const TokenTable words({.name = embeddings + ".word_embeddings",
                          .tokens = static_cast<std::size_t>(vocab_size),
                          .channels = C,
                          .tiles = tiles,
                          .initializer = normal});
  const auto rows = [&](const char* name, int count, int undecayed) {
    return ParameterSpec{.name = embeddings + name,
                         .shape = {static_cast<std::size_t>(count), C},
                         .initializer = normal,
                         .decays = true,
                         .undecayed_end = static_cast<std::size_t>(undecayed) * C};
  };
  const auto block = [=, options = *this](int index, UnitBuilder& builder) -> TransformerBlockOptions {
    const std::string name = fmt::format("{}encoder.layer.{}", prefix, index);
    const std::string self = name + ".attention.self", out = name + ".attention.output.dense";
    const auto linear = [&](std::vector<LinearOptions::Tensor> tensors, const std::string& tile_name) {
      return LinearOptions{.tensors = std::move(tensors),
                           .in = C,
                           .bias = true,
                           .initializer = normal,
                           .cut = {builder.add_tiles(tile_name, tiles)}};
    };
    return {.name = name,
            .index = index,
            .post_norm = true,
            .norm_1 = name + ".attention.output.LayerNorm",
            .norm_2 = name + ".output.LayerNorm",
            .norm = norm,
            .qkv = linear({{self + ".query", C}, {self + ".key", C}, {self + ".value", C}}, self + ".qkv"),
            .out = linear({{out, C}}, out),
            .attention_name = self,
            .attention = {.shape = {.positions = options.sequence_length,
                                    .heads = options.heads,
                                    .channels = options.hidden / options.heads,
                                    .kernels = options.attention,
                                    .fast_backward = options.fast_attention_backward,
                                    .causal = false}},
            .mlp = {.up = {name + ".intermediate.dense", normal},
                    .down = {name + ".output.dense", normal},
                    .channels = C,
                    .inner = F,
                    .bias = true,
                    .tiles = builder.add_tiles(name + ".mlp", tiles)},
            .dropout = options.dropout};
  };
  LanguageModel model{.name = fmt::format("{} {} × {}, {} heads", family(), layers, hidden, heads),
                      .positions = sequence_length,
                      .precision = precision,
                      .embedding = {.table = words,
                                    .unit = embeddings,
                                    .positions = rows(".position_embeddings.weight", position_rows(),
                                                      position_rows() - first_position() - sequence_length),
                                    .first_position = static_cast<std::size_t>(first_position()),
                                    .types = rows(".token_type_embeddings.weight", types, 0),
                                    .norm_name = embeddings + ".LayerNorm",
                                    .norm = norm,
                                    .dropout = dropout},
                      .blocks = layers,
                      .block = block,
                      .head = ClassificationHeadOptions{}};
  if (classifies()) {
    model.name += fmt::format(", {} classes", classes);
    model.head = ClassificationHeadOptions{
        .unit = "classifier",
        .dense = roberta ? "classifier.dense" : "bert.pooler.dense",
        .out = roberta ? "classifier.out_proj" : "classifier",
        .channels = C,
        .classes = static_cast<std::size_t>(classes),
        .dropout = dropout,
        .drops_input = roberta,
        .dropout_site = dropout_site(layers, DropoutSite::attention),  // as of one more block
        .initializer = normal};
    return model;
  }
  const std::string head = roberta ? "lm_head" : "cls.predictions";
  const std::string transform = roberta ? head : head + ".transform";
  model.head = LanguageHeadOptions{.table = words,
                                   .norm_name = roberta ? "lm_head.layer_norm" : transform + ".LayerNorm",
                                   .norm = norm,
                                   .unit = head,
                                   .transform = MlpOptions::Matrix{transform + ".dense", normal},
                                   .bias = head + ".bias",
                                   .targets = targets};
  return model;
}

}  // namespace ranvier::models
