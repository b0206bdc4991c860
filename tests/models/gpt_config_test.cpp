#include "tests/models/config_check.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using ranvier::tests::error_of;
using ranvier::tests::says;
using ranvier::tests::TemporaryFolder;
using ranvier::tests::write_tensors;

namespace {

const GptOptions sizes{.layers = 2, .hidden = 12, .heads = 3, .vocab_size = 70, .sequence_length = 9};

/// A config.json with one key's value replaced.
std::string with(const std::string& key, const std::string& value) {
  std::string json = model_config_json(sizes);
  const auto at = json.find("\"" + key + "\"");
  if (at == std::string::npos) return json.insert(1, "\"" + key + "\": " + value + ",");
  const auto begin = json.find(':', at) + 1;
  return json.replace(begin, json.find_first_of(",\n", begin) - begin, " " + value);
}

struct Fixture {
  Fixture() {
    write("model.safetensors", {{"transformer.wte.weight", {70, 12}},
                                {"transformer.wpe.weight", {9, 12}},
                                {"transformer.h.0.ln_1.weight", {12}},
                                {"transformer.h.1.ln_1.weight", {12}}});
  }

  /// Zeros; returns the path.
  std::filesystem::path write(const char* name,
                              const std::vector<std::pair<std::string, std::vector<std::size_t>>>& shapes) const {
    std::vector<TensorToStore> tensors;
    for (const auto& [tensor, shape] : shapes) tensors.push_back({tensor, runtime::DType::f32, shape});
    return write_tensors(folder.path() / name, tensors, std::vector<float>(tests::elements_of(tensors)));
  }
  static Error refusal_of(const Safetensors& weights, std::optional<int> heads = std::nullopt) {
    return error_of([&] { static_cast<void>(stored_model(weights, heads)); });
  }
  [[nodiscard]] std::filesystem::path file() const { return folder.path() / "model.safetensors"; }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a model's config.json reads back as written") {
  CHECK(!read_model_config(folder.path()));
  folder.write("config.json", model_config_json(sizes));
  CHECK(same_sizes(read_model_config(folder.path()).value().sizes, sizes));
}

TEST_CASE_FIXTURE(Fixture, "the three rates of dropout are read, with default 0.1, and written as one") {
  using Rates = std::map<std::string, float>;
  folder.write("config.json", with("attn_pdrop", "0.25"));
  CHECK(read_model_config(folder.path())->dropout ==
        Rates{{"attn_pdrop", 0.25f}, {"embd_pdrop", 0}, {"resid_pdrop", 0}});
  folder.write("config.json", with("attn_pdrop", "null"));
  CHECK(read_model_config(folder.path())->dropout.at("attn_pdrop") == 0.1f);
  GptOptions dropped = sizes;
  dropped.dropout = 0.3f;
  folder.write("config.json", model_config_json(dropped));
  CHECK(read_model_config(folder.path())->dropout ==
        Rates{{"attn_pdrop", 0.3f}, {"embd_pdrop", 0.3f}, {"resid_pdrop", 0.3f}});
}

TEST_CASE_FIXTURE(Fixture, "a config.json made from another one keeps all entries that training did not change") {
  const std::string like = R"({
  "_name_or_path": "a \"b\", {c}",  "layer_norm_epsilon": 1e-05,
  "n_layer": 12, "n_embd": 12, "n_head": 3, "vocab_size": 70, "n_positions": 1024, "n_ctx": 1024,
  "model_type": "gpt2", "resid_pdrop": 0.1, "eos_token_id": 69,"big":123456789012345678901234567890,
  "task_specific_params": { "text-generation": {"do_sample": true, "max_length": [50, 60]} },
  "\u006eested": {}, "dtype": "bfloat16", "n_layer": 13,
  "reorder_and_upcast_attn": true }
)";
  CHECK(model_config_json(sizes, like) == R"({
  "_name_or_path": "a \"b\", {c}",
  "layer_norm_epsilon": 1e-05,
  "n_layer": 2,
  "n_embd": 12,
  "n_head": 3,
  "vocab_size": 70,
  "n_positions": 9,
  "n_ctx": 9,
  "model_type": "gpt2",
  "resid_pdrop": 0,
  "eos_token_id": 69,
  "big": 123456789012345678901234567890,
  "task_specific_params": { "text-generation": {"do_sample": true, "max_length": [50, 60]} },
  "nested": {},
  "dtype": "float32",
  "reorder_and_upcast_attn": true,
  "embd_pdrop": 0,
  "attn_pdrop": 0
}
)");
  CHECK(model_config_json(sizes, R"({"n_layer": 1})").find("\"torch_dtype\": \"float32\"") != std::string::npos);
  folder.write("config.json", model_config_json(sizes, like));
  CHECK(model_config_json(sizes, read_model_config(folder.path())->text) == model_config_json(sizes, like));
}

TEST_CASE_FIXTURE(Fixture, "a config.json that is damaged or of another kind of model is refused by key") {
  check_refused("{", "config.json: not JSON: incomplete JSON at offset 1");
  check_refused("[1]", "config.json", "not a JSON object");
  const std::pair<const char*, const char*> refused[] = {{"n_head", "0"},
                                                         {"n_layer", "\"two\""},
                                                         {"n_embd", "1e3"},
                                                         {"vocab_size", "99999999999"},
                                                         {"n_positions", "null"},
                                                         {"n_head", "5"},
                                                         {"model_type", "\"gptj\""},
                                                         {"activation_function", "\"relu\""},
                                                         {"n_inner", "99"},
                                                         {"layer_norm_epsilon", "1e-6"},
                                                         {"scale_attn_weights", "false"},
                                                         {"scale_attn_by_inverse_layer_idx", "true"},
                                                         {"tie_word_embeddings", "false"},
                                                         {"n_embd", "1e400"},
                                                         {"resid_pdrop", "1"},
                                                         {"resid_pdrop", "0.9999999999"},
                                                         {"attn_pdrop", "-0.1"},
                                                         {"embd_pdrop", "\"0.1\""},
                                                         {"add_cross_attention", "true"},
                                                         {"reorder_and_upcast_attn", "1"},
                                                         {"quantization_config", R"({"quant_method":"gptq"})"},
                                                         {"pruned_heads", "{\"0\": [1]}"}};
  for (const auto& [key, value] : refused) {
    CAPTURE(key);
    check_refused(with(key, value), fmt::format("'{}'", key));
  }
  folder.write("config.json", with("n_inner", "48"));
  CHECK(read_model_config(folder.path()));
}

TEST_CASE_FIXTURE(Fixture, "sizes come from the tensors, and the number of heads from the config or the flag") {
  const Safetensors weights(file());
  CHECK(same_sizes(stored_model(weights, 3)->sizes, sizes));
  CHECK(says(refusal_of(weights), "`heads`"));
  CHECK(says(refusal_of(weights, 5), "`heads` 5", "12"));
  folder.write("config.json", model_config_json(sizes));
  CHECK(same_sizes(stored_model(weights, std::nullopt)->sizes, sizes));
  CHECK(same_sizes(stored_model(weights, 3)->sizes, sizes));
  CHECK(says(refusal_of(weights, 4), "`heads` 4", "config.json"));
  folder.write("config.json", with("n_layer", "3"));
  CHECK(says(refusal_of(weights), "n_layer", "3", "model.safetensors"));
}

TEST_CASE_FIXTURE(Fixture, "blocks beyond the number in config.json are named, and ignored ones do not count") {
  folder.write("config.json", with("n_layer", "1"));
  CHECK(says(refusal_of(Safetensors(file())), "'n_layer' is 1", "'h.1.ln_1.weight'", "`ignore_tensors`"));
  CHECK(std::get<GptOptions>(stored_model(Safetensors(file(), R"(^transformer\.h\.1\.)"), std::nullopt)->sizes)
            .layers == 1);
  CHECK(says(refusal_of(Safetensors(file(), R"(h\.0\.)")), "tensor 'h.0.ln_1.weight' is missing"));
}

TEST_CASE_FIXTURE(Fixture, "a block that is missing between others is named") {
  const auto path = write("gap.safetensors", {{"wte.weight", {1, 1}},
                                              {"wpe.weight", {1, 1}},
                                              {"h.0.ln_1.weight", {1}},
                                              {"h.2147483647.ln_1.weight", {1}}});
  CHECK(says(refusal_of(Safetensors(path), 1),
             "tensor 'h.1.ln_1.weight' is missing, but 'h.2147483647.ln_1.weight'"));
}

TEST_CASE_FIXTURE(Fixture, "weights and blocks of no known family are left to the program that defines them") {
  CHECK_FALSE(stored_model(Safetensors(write("other.safetensors", {{"linear.weight", {1}}})), 1));
  const auto path =
      write("own.safetensors", {{"wte.weight", {1, 1}}, {"wpe.weight", {1, 1}}, {"shift.0.now", {1}}});
  CHECK_FALSE(stored_model(Safetensors(path), std::nullopt));
}
