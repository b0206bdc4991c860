#include "tests/models/config_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
TEST_CASE("missing entries of a BERT's or RoBERTa's config.json have transformers' defaults") {
  const BertOptions bert = sizes_in<BertOptions>(small_config("bert"));
  CHECK(!bert.roberta);
  CHECK(bert.sequence_length == 64);
  CHECK(bert.types == 2);
  CHECK(bert.norm_epsilon == 1e-12f);
  CHECK(parsed_config(small_config("bert")).dropout ==
        std::map<std::string, float>{{"hidden_dropout_prob", 0.1f}, {"attention_probs_dropout_prob", 0.1f}});
  const BertOptions roberta =
      sizes_in<BertOptions>(small_config("roberta", R"("layer_norm_eps": 1e-05, "type_vocab_size": 1)"));
  CHECK(roberta.roberta);
  CHECK(roberta.first_position() == 2);
  CHECK(roberta.sequence_length == 62);
  CHECK(roberta.types == 1);
  CHECK(roberta.norm_epsilon == 1e-5f);
  CHECK(sizes_in<BertOptions>(small_config("roberta", R"("pad_token_id": 5)")).sequence_length == 58);
  CHECK(sizes_in<BertOptions>(small_config("bert", R"("pad_token_id": 5)")).sequence_length == 64);
  CHECK(parsed_config(small_config("bert", R"("hidden_dropout_prob": 0.0)")).dropout.at("hidden_dropout_prob") ==
        0);
}

TEST_CASE("entries that would change a BERT's computation are refused by key") {
  check_refused(small_config("bert", R"("hidden_act": "relu")"), "'hidden_act'", "relu", "gelu");
  check_refused(small_config("bert", R"("position_embedding_type": "relative_key")"), "'position_embedding_type'",
                "relative_key", "absolute");
  check_refused(small_config("roberta", R"("is_decoder": true)"), "'is_decoder'");
  check_refused(small_config("bert", R"("add_cross_attention": true)"), "'add_cross_attention'");
  check_refused(small_config("bert", R"("tie_word_embeddings": false)"), "'tie_word_embeddings'");
  check_refused(small_config("bert", R"("pruned_heads": {"1": [2]})"), "'pruned_heads'");
  check_refused(small_config("roberta", R"("pad_token_id": 63)"),
                "'max_position_embeddings' leaves no positions: 64", "'pad_token_id' 63");
  check_refused(small_config("roberta", R"("pad_token_id": 2147483647)"), "'max_position_embeddings'");
  check_refused(small_config("roberta", R"("pad_token_id": -1)"), "'pad_token_id' is -1");
  check_refused(small_config("roberta", R"("pad_token_id": 536870913, "max_position_embeddings": 536870920)"),
                "'pad_token_id' is out of range: 536870913");
  check_refused(small_config("bert", R"("attention_probs_dropout_prob": 1)"), "'attention_probs_dropout_prob'");
  check_refused(R"({"model_type": "bert", "num_hidden_layers": 3})", "'hidden_size' is missing");
  check_refused(R"({"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 48, "num_attention_heads": 5,
              "intermediate_size": 8, "vocab_size": 9})",
                "'num_attention_heads' 5", "'hidden_size' 48");
}

TEST_CASE("a config.json made from another one keeps all entries, except the changed ones") {
  const std::string like = small_config(
      "roberta", R"("architectures": ["RobertaModel"], "eos_token_id": 2, "quirk": [1, 2], "pad_token_id": 1)");
  BertOptions shorter = sizes_in<BertOptions>(like);
  shorter.sequence_length = 16;
  shorter.dropout = 0.25f;
  const std::string text = model_config_json(shorter, like);
  tests::check_has(text, {R"("quirk": [1, 2])", R"("eos_token_id": 2)", R"("RobertaForMaskedLM")",
                          R"("max_position_embeddings": 18)"});
  shorter.dropout = 0;
  CHECK(same_sizes(sizes_in<BertOptions>(text), shorter));
  CHECK(parsed_config(text).dropout.at("attention_probs_dropout_prob") == 0.25f);
}
