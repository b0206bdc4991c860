#include "models/families/bert.hpp"

#include "models/core/expect_sizes.hpp"
#include "models/families/bert_layers.hpp"
#include "models/families/bert_sizes.hpp"
#include "models/modules/block_dropout.hpp"
#include "models/modules/classification_head.hpp"
#include "models/modules/language_head.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

namespace ranvier::models {
namespace {

std::unique_ptr<Layer> make_bert_classifier(const BertOptions& options, const Tuning& tuning) {
  return make_classification_head(
      {.unit = "classifier",
       .dense = options.roberta ? "classifier.dense" : "bert.pooler.dense",
       .out = options.roberta ? "classifier.out_proj" : "classifier",
       .channels = static_cast<std::size_t>(options.hidden),
       .classes = static_cast<std::size_t>(options.classes),
       .dropout = options.dropout,
       .drops_input = options.roberta,
       .dropout_site = dropout_site(options.layers, DropoutSite::attention),  // as of one more block
       .initializer = bert_initializer(options),
       .precision = options.precision},
      tuning);
}

std::unique_ptr<Layer> make_bert_head(const BertOptions& options, const Tuning& tuning) {
  if (options.classifies()) return make_bert_classifier(options, tuning);
  LanguageHeadOptions head{
      .table = BertTokenTable(options), .norm = bert_norm(options), .precision = options.precision};
  head.unit = options.roberta ? "lm_head" : "cls.predictions";
  head.norm_name = options.roberta ? "lm_head.layer_norm" : "cls.predictions.transform.LayerNorm";
  head.transform = HeadTransform{
      .name = options.roberta ? "lm_head.dense" : "cls.predictions.transform.dense",
      .initializer = bert_initializer(options),
  };
  head.bias = head.unit + ".bias";
  head.targets = options.targets;
  return make_language_head(head, tuning);
}

constexpr BertOptions bert(int layers, int hidden, int heads, int vocab_size = 30522) {
  return {.layers = layers, .hidden = hidden, .heads = heads, .inner = 4 * hidden, .vocab_size = vocab_size};
}

constexpr BertOptions roberta(int layers, int hidden, int heads, int vocab_size = 50265) {
  BertOptions options = bert(layers, hidden, heads, vocab_size);
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

}  // namespace

const std::vector<NamedBert>& named_berts() {
  constexpr int mics_vocabulary = 32008;
  static const std::vector<NamedBert> all{
      {"bert", false, own(bert(6, 384, 6, 256))},
      {"roberta", false, own(roberta(6, 384, 6, 256))},
      {"bert-base", true, bert(12, 768, 12)},
      {"bert-large", true, bert(24, 1024, 16)},
      {"roberta-base", true, roberta(12, 768, 12)},
      {"roberta-large", true, roberta(24, 1024, 16)},
      {"bert-10b", true, bert(127, 2560, 40, mics_vocabulary)},
      {"bert-15b", true, bert(190, 2560, 40, mics_vocabulary)},
      {"bert-20b", true, bert(64, 5120, 40, mics_vocabulary)},
      {"bert-50b", true, bert(62, 8192, 64, mics_vocabulary)},
      {"roberta-20b", true, roberta(62, 5120, 40)},
  };
  return all;
}

BertTokenTable::BertTokenTable(const BertOptions& options)
    : TokenTable({.name = bert_prefix(options) + "embeddings.word_embeddings",
                  .tokens = static_cast<std::size_t>(options.vocab_size),
                  .channels = static_cast<std::size_t>(options.hidden),
                  .tiles = static_cast<std::size_t>(options.tile),
                  .initializer = bert_initializer(options)}) {}

Architecture make_bert(const BertOptions& options, const Tuning& tuning) {
  expect_sizes(options);
  expect(options.targets == 0 || !options.classifies(), "a classified sample has no targets: {}", options.targets);
  expect(options.targets >= 0 && options.targets <= options.sequence_length,
         "targets are out of range: {} for {} positions", options.targets, options.sequence_length);
  Architecture model;
  model.name =
      fmt::format("{} {} × {}, {} heads", bert_family(options), options.layers, options.hidden, options.heads);
  if (options.classifies()) model.name += fmt::format(", {} classes", options.classes);
  model.positions = options.sequence_length;
  model.precision = options.precision;
  model.targets = options.targets;
  model.layers.push_back(make_bert_embedding(options, tuning));
  for (int i = 0; i < options.layers; ++i) model.layers.push_back(make_bert_block(options, i, tuning));
  model.layers.push_back(make_bert_head(options, tuning));
  return model;
}

}  // namespace ranvier::models
