#include "models/families/model.hpp"
#include "tests/test.hpp"

#include <variant>

using namespace ranvier;
using namespace ranvier::models;
using ranvier::tests::error_of;
using ranvier::tests::says;

namespace {

constexpr const char* path = "folder/config.json";

LlamaOptions parsed(const std::string& json) {
  return std::get<LlamaOptions>(parse_model_config(json, path).sizes);
}

/// Config of a small model, with additional keys.
std::string config(std::string_view type, const std::string& more = {}) {
  return R"({"model_type": ")" + std::string(type) +
         R"(", "num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2,
            "intermediate_size": 80, "vocab_size": 70, "max_position_embeddings": 64, "rms_norm_eps": 1e-05)" +
         (more.empty() ? "" : ", " + more) + "}";
}

bool same(const LlamaOptions& a, const LlamaOptions& b) {
  return a.layers == b.layers && a.hidden == b.hidden && a.heads == b.heads &&
         a.stored_key_heads() == b.stored_key_heads() && a.stored_head_size() == b.stored_head_size() &&
         a.inner == b.inner && a.vocab_size == b.vocab_size && a.sequence_length == b.sequence_length &&
         a.norm_epsilon == b.norm_epsilon && a.rope_base == b.rope_base && a.rope_scaling == b.rope_scaling &&
         a.window == b.window && a.qkv_bias == b.qkv_bias && a.out_bias == b.out_bias && a.qk_norm == b.qk_norm &&
         a.fused == b.fused && a.tied == b.tied && a.initializer_range == b.initializer_range;
}

void refused(const std::string& json, std::initializer_list<std::string_view> words) {
  const Error error = error_of([&] { static_cast<void>(parse_model_config(json, path)); });
  CHECK(error.code() == ErrorCode::data);
  for (const std::string_view word : words) {
    CAPTURE(word);
    CHECK(says(error, word));
  }
}

}  // namespace

TEST_CASE("missing entries of a family's config.json have transformers' defaults") {
  const LlamaOptions llama = parsed(config("llama"));
  CHECK(llama.stored_head_size() == 8);
  CHECK(llama.rope_base == 10000);
  CHECK(llama.window == 0);
  CHECK((!llama.qkv_bias && !llama.out_bias && !llama.qk_norm && !llama.tied));
  CHECK(parsed(config("mistral")).window == 4096);
  CHECK(parsed(config("mistral", R"("sliding_window": null)")).window == 0);
  CHECK(parsed(config("qwen2")).qkv_bias);
  CHECK(!parsed(config("qwen2", R"("sliding_window": 32, "use_sliding_window": false)")).out_bias);
  CHECK(parsed(config("qwen2", R"("sliding_window": 32, "use_sliding_window": false)")).window == 0);
  const LlamaOptions qwen3 = parsed(config("qwen3", R"("tie_word_embeddings": true)"));
  CHECK((qwen3.qk_norm && qwen3.tied && !qwen3.qkv_bias));
  CHECK(qwen3.stored_head_size() == 128);
  const LlamaOptions phi3 = parsed(config("phi3"));
  CHECK(phi3.fused);
  CHECK(phi3.window == 0);
  CHECK(parsed(config("phi3", R"("rms_norm_eps": null)")).norm_epsilon == 1e-5f);
  CHECK(parsed(config("phi3", R"("sliding_window": 2047)")).window == 2047);
  const LlamaOptions biased = parsed(config("llama", R"("attention_bias": true)"));
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
  const LlamaOptions older = parsed(config("llama", R"("rope_theta": 500000.0, "rope_scaling": {)" + values + "}"));
  const LlamaOptions newer =
      parsed(config("llama", R"("rope_parameters": {"rope_theta": 500000.0, )" + values + "}"));
  CHECK(older.rope_base == 500000);
  CHECK(older.rope_scaling == llama3);
  CHECK(same(older, newer));
  CHECK(parsed(config("llama", R"("rope_scaling": {"type": "linear", "factor": 2})")).rope_scaling ==
        RopeScaling{.kind = RopeScaling::Kind::linear, .factor = 2});
  CHECK(!parsed(config("llama", R"("rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})")).rope_scaling);
  CHECK(same(parsed(config("llama", R"("rope_parameters": {"rope_theta": 500000.0, )" + values +
                                        R"(}, "rope_theta": 5e5, "rope_scaling": {)" + values + "}")),
             older));
}

TEST_CASE("rotary frequencies that a config.json has twice, or by layer type, are refused") {
  const std::string newer = R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"})";
  refused(config("llama", newer + R"(, "rope_scaling": {"rope_type": "linear", "factor": 8.0})"),
          {path, "'rope_parameters' and 'rope_scaling'", "remove the entry"});
  refused(config("llama", newer + R"(, "rope_theta": 10000.0)"), {"'rope_parameters' and 'rope_theta'"});
  refused(config("qwen3", R"("rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}})"),
          {"'rope_parameters'", "all layers"});
  refused(config("llama", R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})"),
          {"'partial_rotary_factor'", "5E-1"});
}

TEST_CASE("quantized weights are refused with a remedy") {
  for (const char* const type : {"llama", "bert"})
    refused(config(type, R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})"),
            {"are quantized", "'quantization_config'", "bitsandbytes", "dequantize"});
}

TEST_CASE("Qwen's window starts at layer max_window_layers, and is refused if layers differ") {
  const auto window = [](const std::string& more) {
    return parsed(config("qwen2", R"("use_sliding_window": true, "sliding_window": 8)" + more)).window;
  };
  CHECK(window(R"(, "max_window_layers": 0)") == 8);
  CHECK(window(R"(, "max_window_layers": 3)") == 0);
  CHECK(window("") == 0);  // it starts at layer 28
  CHECK(window(R"(, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention"])") == 8);
  CHECK(window(R"(, "layer_types": ["full_attention", "full_attention", "full_attention"])") == 0);
  CHECK(parsed(config("qwen3", R"("use_sliding_window": true, "max_window_layers": 0)")).window == 4096);
  CHECK(parsed(config("llama", R"("use_sliding_window": true, "sliding_window": 8)")).window == 0);

  LlamaOptions narrow = parsed(config("qwen2"));
  narrow.window = 8;
  CHECK(same(parsed(model_config_json(narrow)), narrow));
}

TEST_CASE("entries that would change the computation are refused by key") {
  refused(config("gemma"), {path, "'model_type'", "gemma", "llama"});
  refused(config("llama", R"("hidden_act": "gelu")"), {"'hidden_act'", "gelu", "silu"});
  refused(config("llama", R"("mlp_bias": true)"), {"'mlp_bias'"});
  refused(config("llama", R"("is_causal": false)"), {"'is_causal'"});
  refused(config("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})"), {"'rope_type'", "yarn"});
  refused(config("qwen2", R"("use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1)"),
          {"'max_window_layers'"});
  refused(config("llama", R"("num_attention_heads": 2147483646)"), {"'num_attention_heads'", "at most"});
  refused(config("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]})"),
          {"'type'", "longrope", "supported"});
  refused(config("phi3", R"("resid_pdrop": 0.1)"), {"'resid_pdrop'"});
  refused(config("qwen3", R"("use_sliding_window": true,
                             "layer_types": ["full_attention", "sliding_attention", "full_attention"])"),
          {"'layer_types'"});
  refused(config("llama", R"("head_dim": 7)"), {path, "even number of channels per head: 7", "'head_dim'"});
  refused(R"({"model_type": "llama", "num_hidden_layers": 3})", {"'hidden_size' is missing"});
  refused(R"({"model_type": "llama", "num_hidden_layers": 0})", {"'num_hidden_layers' is 0"});
}

TEST_CASE("the config.json of every named model reads back as the same model") {
  for (const NamedModel& named : named_models()) {
    CAPTURE(named.name);
    const ModelSizes sizes = *named_model(named.name);
    const ModelConfig again = parse_model_config(model_config_json(sizes), path);
    CHECK(family_name(again.sizes) == family_name(sizes));
    CHECK(!size_problem(sizes));
    if (const auto* const llama = std::get_if<LlamaOptions>(&sizes))
      CHECK(same(std::get<LlamaOptions>(again.sizes), *llama));
  }
}

TEST_CASE("a config.json made from another one keeps all entries, and all positions") {
  const std::string like = config("qwen2", R"("rope_theta": 1000000.0, "eos_token_id": 69, "quirk": [1, 2])");
  LlamaOptions shorter = parsed(like);
  shorter.sequence_length = 16;
  const std::string text = model_config_json(shorter, like);
  CHECK(text.find(R"("quirk": [1, 2])") != std::string::npos);
  CHECK(text.find(R"("eos_token_id": 69)") != std::string::npos);
  CHECK(same(parsed(text), parsed(like)));
}
