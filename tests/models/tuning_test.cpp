#include "models/core/tuning.hpp"

#include "tests/models/families.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

std::set<std::string> names_of(const Architecture& model, bool trained) {
  std::set<std::string> names;
  for (const UnitSpec& unit : model.units())
    for (const ParameterSpec& parameter : unit.parameters)
      if (unit.trained == trained) names.insert(parameter.name);
  return names;
}

/// Compares the gradients of a partly trained model with the same gradients of `whole`.
template <typename Options>
void check_gradients(const Options& options, const Tuning& tuning) {
  const auto samples = made_up_samples(options, 40, 3);
  ModelRun whole(device_of(2, true), options, 3), part(device_of(2, true), options, 3, tuning);
  part.set_parameters(whole.reference_parameters());
  const double loss = whole.forward(samples, 1.0 / 100);
  CHECK(part.forward(samples, 1.0 / 100) == doctest::Approx(loss).epsilon(1e-6));
  for (const bool accumulate : {false, true}) {
    whole.backward(accumulate);
    part.backward(accumulate);
  }
  const auto expected = whole.gradients_by_name();
  std::set<std::string> names;
  for (const auto& [tensor, gradient] : part.gradients_by_name()) {
    CAPTURE(tensor);
    names.insert(tensor);
    check_close(gradient, expected.at(tensor), 1e-5);
  }
  CHECK(names == names_of(make_model(options, tuning), true));
}

Error refusal_of(const ModelSizes& sizes, const Tuning& tuning) {
  return tests::error_of([&] { static_cast<void>(make_model(sizes, tuning)); });
}

}  // namespace

TEST_CASE("every unit is trained or frozen completely, and a split group becomes two units") {
  const LlamaOptions llama = small_llama();
  const Tuning tuning = make_tuning("layers.1|q_proj", "layers.1.*norm");
  const Architecture model = make_llama(llama, tuning);
  std::size_t trained = 0, all = 0;
  for (const UnitSpec& unit : model.units()) {
    CAPTURE(unit.name);
    for (const ParameterSpec& parameter : unit.parameters) {
      CHECK(unit.trained == tuning.trains(parameter.name));
      all += parameter.elements();
      if (unit.trained) trained += parameter.elements();
    }
  }
  CHECK(all == make_llama(llama).parameters());
  CHECK(model.parameters() == all);
  CHECK(model.trained_parameters() == trained);
  CHECK(model.first_trained_layer() == 1);
  const auto block = [&](std::size_t layer) {
    std::vector<std::pair<std::string, bool>> units;
    for (const UnitSpec& unit : model.layers[layer]->units()) units.emplace_back(unit.name, unit.trained);
    return units;
  };
  using Units = std::vector<std::pair<std::string, bool>>;
  CHECK(block(0) == Units{{"model.embed_tokens", false}});
  CHECK(block(1) == Units{{"model.layers.0.frozen", false}, {"model.layers.0", true}});
  CHECK(block(2) == Units{{"model.layers.1.frozen", false}, {"model.layers.1", true}});
  CHECK(names_of(model, true).contains("model.layers.0.self_attn.q_proj.weight"));
  CHECK_FALSE(names_of(model, true).contains("model.layers.1.input_layernorm.weight"));
  // Without a split a unit keeps its name.
  const Architecture front = make_llama(llama, make_tuning("", "embed|layers.0"));
  CHECK(front.units()[1].name == "model.layers.0");
  CHECK_FALSE(front.units()[1].trained);
  CHECK(front.first_trained_layer() == 2);
}

TEST_CASE("frozen layers cost the operations that still run") {
  const GptOptions gpt{.layers = 3, .hidden = 64, .heads = 1, .vocab_size = 100, .sequence_length = 16};
  const Architecture whole = make_gpt(gpt), part = make_gpt(gpt, make_tuning("^h.1", ""));
  CHECK(part.flops_per_sample(1) == doctest::Approx(whole.flops_per_sample(1) / 3));
  CHECK(part.flops_per_sample(2) == whole.flops_per_sample(2));
  CHECK(part.flops_per_sample(3) == doctest::Approx(whole.flops_per_sample(3) * 2 / 3));
}

TEST_CASE("a selection that trains nothing, or only a part of a unit, is refused with a remedy") {
  const GptOptions gpt{.layers = 2, .hidden = 16, .heads = 2, .vocab_size = 37, .sequence_length = 8};
  CHECK(tests::says(refusal_of(gpt, make_tuning("q_proj", "")), ErrorCode::usage, "`train`",
                    "h.0.attn.c_attn.weight", "wte.weight", "ln_f.bias"));
  const UnitSpec unit{"scale", {{"scale.weight", {8}, {}}, {"scale.bias", {8}, {}}}};
  CHECK_FALSE(tuned(unit, make_tuning("", "scale")).trained);
  CHECK(tests::says(tests::error_of([&] { static_cast<void>(tuned(unit, make_tuning("", "bias"))); }),
                    ErrorCode::usage, "`freeze`", "scale.weight is trained", "scale.bias is frozen",
                    "split unit 'scale'"));
  CHECK_NOTHROW(static_cast<void>(make_model(gpt, make_tuning("ln_f.bias", ""))));
  LlamaOptions tied = small_llama();
  tied.tied = true;
  for (const auto& [sizes, freeze] : {std::pair<ModelSizes, const char*>{gpt, "q_proj"}, {tied, "^lm_head"}})
    CHECK(tests::says(refusal_of(sizes, make_tuning("", freeze)), ErrorCode::usage, "`freeze` matches no parameter",
                      freeze[0] == 'q' ? "h.0.attn.c_attn.weight" : "model.embed_tokens.weight"));
  CHECK_THROWS_AS(static_cast<void>(make_tuning("(", "")), Error);
}

TEST_CASE("trained parameters have the gradients that they have if everything is trained") {
  tests::Share share(on_gpu_here() ? 4 : 2, 5), tiled_share(2, 4);  // an emulated GPU is slow
  using Selections = std::vector<std::pair<const char*, const char*>>;
  const auto check = [&](const auto& options, int tile, const Selections& selections) {
    for (const auto& [train, freeze] : selections) {
      if (!share.takes()) continue;
      CAPTURE_ALL(train, freeze);
      check_gradients(options, make_tuning(train, freeze));
      if (!tiled_share.takes()) continue;
      auto tiled = options;
      tiled.tile = tile;
      check_gradients(tiled, make_tuning(train, freeze));
    }
  };
  for (const auto& [name, options] : family()) {
    CAPTURE(name);
    check(options, 4,
          {{"k_proj|up_proj|model.norm", ""},
           {"", "v_proj|q_proj.bias|input_layernorm|embed"},
           {"bias|norm|o_proj.weight", ""},
           {"embed", ""}});
    if (options.qkv_bias) check(options, 4, {{"", "weight"}});
  }
  for (const auto& [name, options] : bert_family()) {
    CAPTURE(name);
    check(options, 2,
          {{"position|query|output.dense", ""},
           {"", "word_embeddings|key|LayerNorm.bias"},
           {"token_type|lm_head.bias|predictions.bias", ""},
           {"", "embeddings|dense.weight"}});
  }
  for (const int tile : {1, 2})
    for (const char* train : {"^h.1|ln_f.weight", "wpe", "wte|ln_f.bias", "c_attn.weight|mlp.c_proj.bias",
                              "ln_1.bias|c_fc|attn.c_proj"}) {
      CAPTURE_ALL(tile, train);
      check_gradients(GptOptions{.layers = 2,
                                 .hidden = 16,
                                 .heads = 2,
                                 .vocab_size = 37,
                                 .sequence_length = 8,
                                 .dropout = 0.1f,
                                 .tile = tile},
                      make_tuning(train, ""));
    }
}
