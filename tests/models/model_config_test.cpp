#include "tests/models/config_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
namespace {

LlamaOptions parsed(const std::string& json) { return sizes_in<LlamaOptions>(json); }

}  // namespace

TEST_CASE("missing entries of a family's config.json have transformers' defaults") {
  const LlamaOptions llama = parsed(small_config("llama"));
  CHECK(llama.stored_head_size() == 8);
  CHECK(llama.rope_base == 10000);
  CHECK(llama.window == 0);
  CHECK((!llama.qkv_bias && !llama.out_bias && !llama.qk_norm && !llama.tied));
  CHECK(parsed(small_config("mistral")).window == 4096);
  CHECK(parsed(small_config("mistral", R"("sliding_window": null)")).window == 0);
  CHECK(parsed(small_config("qwen2")).qkv_bias);
  CHECK(!parsed(small_config("qwen2", R"("sliding_window": 32, "use_sliding_window": false)")).out_bias);
  CHECK(parsed(small_config("qwen2", R"("sliding_window": 32, "use_sliding_window": false)")).window == 0);
  const LlamaOptions qwen3 = parsed(small_config("qwen3", R"("tie_word_embeddings": true)"));
  CHECK((qwen3.qk_norm && qwen3.tied && !qwen3.qkv_bias));
  CHECK(qwen3.stored_head_size() == 128);
  const LlamaOptions phi3 = parsed(small_config("phi3"));
  CHECK(phi3.fused);
  CHECK(phi3.window == 0);
  CHECK(parsed(small_config("phi3", R"("rms_norm_eps": null)")).norm_epsilon == 1e-5f);
  CHECK(parsed(small_config("phi3", R"("sliding_window": 2047)")).window == 2047);
  const LlamaOptions biased = parsed(small_config("llama", R"("attention_bias": true)"));
  CHECK((biased.qkv_bias && biased.out_bias));
}

TEST_CASE("rotary frequencies are read in the formats of older and newer versions of transformers") {
  const RopeScaling llama3{.kind = RopeScaling::Kind::llama3,
                           .factor = 8,
                           .low_frequency_factor = 1,
                           .high_frequency_factor = 4,
                           .original_positions = 8192};
  const std::string values =
      R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192)";
  const LlamaOptions older =
      parsed(small_config("llama", R"("rope_theta": 500000.0, "rope_scaling": {)" + values + "}"));
  const LlamaOptions newer =
      parsed(small_config("llama", R"("rope_parameters": {"rope_theta": 500000.0, )" + values + "}"));
  CHECK(older.rope_base == 500000);
  CHECK(older.rope_scaling == llama3);
  CHECK(same_sizes(older, newer));
  CHECK(parsed(small_config("llama", R"("rope_scaling": {"type": "linear", "factor": 2})")).rope_scaling ==
        RopeScaling{.kind = RopeScaling::Kind::linear, .factor = 2});
  CHECK(!parsed(small_config("llama", R"("rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})"))
             .rope_scaling);
  CHECK(same_sizes(parsed(small_config("llama", R"("rope_parameters": {"rope_theta": 500000.0, )" + values +
                                                    R"(}, "rope_theta": 5e5, "rope_scaling": {)" + values + "}")),
                   older));
}

TEST_CASE("rotary frequencies that a config.json has twice, or by layer type, are refused") {
  const std::string newer = R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"})";
  check_refused(small_config("llama", newer + R"(, "rope_scaling": {"rope_type": "linear", "factor": 8.0})"),
                "'rope_parameters' and 'rope_scaling'", "remove the entry");
  check_refused(small_config("llama", newer + R"(, "rope_theta": 10000.0)"), "'rope_parameters' and 'rope_theta'");
  check_refused(
      small_config("qwen3",
                   R"("rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}})"),
      "'rope_parameters'", "all layers");
  check_refused(
      small_config("llama", R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})"),
      "'partial_rotary_factor'", "5E-1");
}

TEST_CASE("quantized weights are refused with a remedy") {
  for (const char* const type : {"llama", "bert"})
    check_refused(
        small_config(type, R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})"),
        "are quantized", "'quantization_config'", "bitsandbytes", "dequantize");
}

TEST_CASE("Qwen's window starts at layer max_window_layers, and is refused if layers differ") {
  const auto window = [](const std::string& more) {
    return parsed(small_config("qwen2", R"("use_sliding_window": true, "sliding_window": 8)" + more)).window;
  };
  CHECK(window(R"(, "max_window_layers": 0)") == 8);
  CHECK(window(R"(, "max_window_layers": 3)") == 0);
  CHECK(window("") == 0);  // it starts at layer 28
  CHECK(window(R"(, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention"])") == 8);
  CHECK(window(R"(, "layer_types": ["full_attention", "full_attention", "full_attention"])") == 0);
  CHECK(parsed(small_config("qwen3", R"("use_sliding_window": true, "max_window_layers": 0)")).window == 4096);
  CHECK(parsed(small_config("llama", R"("use_sliding_window": true, "sliding_window": 8)")).window == 0);

  LlamaOptions narrow = parsed(small_config("qwen2"));
  narrow.window = 8;
  CHECK(same_sizes(parsed(model_config_json(narrow)), narrow));
}

TEST_CASE("entries that would change the computation are refused by key") {
  check_refused(small_config("gemma"), "'model_type'", "gemma", "llama");
  check_refused(small_config("llama", R"("hidden_act": "gelu")"), "'hidden_act'", "gelu", "silu");
  check_refused(small_config("llama", R"("mlp_bias": true)"), "'mlp_bias'");
  check_refused(small_config("llama", R"("is_causal": false)"), "'is_causal'");
  check_refused(small_config("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})"), "'rope_type'",
                "yarn");
  check_refused(small_config("qwen2", R"("use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1)"),
                "'max_window_layers'");
  check_refused(small_config("llama", R"("num_attention_heads": 2147483646)"), "'num_attention_heads'", "at most");
  check_refused(
      small_config("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]})"),
      "'type'", "longrope", "supported");
  check_refused(small_config("phi3", R"("resid_pdrop": 0.1)"), "'resid_pdrop'");
  check_refused(small_config("qwen3", R"("use_sliding_window": true,
                             "layer_types": ["full_attention", "sliding_attention", "full_attention"])"),
                "'layer_types'");
  check_refused(small_config("llama", R"("head_dim": 7)"), "even number of channels per head: 7", "'head_dim'");
  check_refused(R"({"model_type": "llama", "num_hidden_layers": 3})", "'hidden_size' is missing");
  check_refused(R"({"model_type": "llama", "num_hidden_layers": 0})", "'num_hidden_layers' is 0");
}

TEST_CASE("the config.json of every named model reads back as the same model") {
  int berts = 0;
  for (const NamedModel& named : named_models()) {
    CAPTURE(named.name);
    const ModelSizes sizes = *named_model(named.name);
    const ModelConfig again = parsed_config(model_config_json(sizes));
    CHECK(same_sizes(again.sizes, sizes));
    CHECK(family_name(again.sizes) == family_name(sizes));
    CHECK(!size_problem(sizes));
    for (const auto& [key, rate] : again.dropout) CHECK(rate == 0);
    if (!std::holds_alternative<BertOptions>(sizes)) continue;
    CHECK(named.name.starts_with(family_name(sizes)));
    ++berts;
  }
  CHECK(berts == 11);
}

TEST_CASE("a config.json made from another one keeps all entries, and all positions") {
  const std::string like = small_config("qwen2", R"("rope_theta": 1000000.0, "eos_token_id": 69, "quirk": [1, 2])");
  LlamaOptions shorter = parsed(like);
  shorter.sequence_length = 16;
  const std::string text = model_config_json(shorter, like);
  tests::check_has(text, {R"("quirk": [1, 2])", R"("eos_token_id": 69)"});
  CHECK(same_sizes(parsed(text), parsed(like)));
}
