#include "models/core/lora.hpp"

#include "models/families/adapter_files.hpp"
#include "models/weights/unit_weights.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

const LoraOptions everywhere{
    .rank = 3,
    .alpha = 5,
    .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "mlp.up_proj", "down_proj"}};
const LoraOptions everywhere_in_phi{
    .rank = 3, .alpha = 5, .targets = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}};
const LoraOptions everywhere_in_bert{.rank = 3, .alpha = 5, .targets = {"query", "key", "value", "dense"}};
const LoraOptions everywhere_in_gpt{.rank = 3, .alpha = 5, .targets = {"c_attn", "c_proj", "c_fc"}};

/// Index of the element of an output and an input in stored weights [O, I].
struct Place {
  bool inputs_first = false;
  std::size_t in = 0, out = 0;

  [[nodiscard]] std::size_t operator()(std::size_t output, std::size_t input) const {
    return inputs_first ? input * out + output : output * in + input;
  }
};

/// W + factor · B · A for every weight that has an adapter, without the adapters.
ReferenceParameters merged(const ReferenceParameters& parameters, const LoraOptions& options, bool inputs_first) {
  ReferenceParameters all;
  for (const auto& [name, values] : parameters)
    if (!is_adapter(name)) all[name] = values;
  for (auto& [name, weight] : all) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (!name.ends_with(".weight") || !options.adapts(module)) continue;
    const auto &a = parameters.at(lora_a(module)), &b = parameters.at(lora_b(module));
    const auto R = static_cast<std::size_t>(options.rank);
    const Place place{inputs_first, a.size() / R, b.size() / R};
    for (std::size_t o = 0; o < place.out; ++o)
      for (std::size_t i = 0; i < place.in; ++i)
        for (std::size_t r = 0; r < R; ++r)
          weight[place(o, i)] += options.factor() * b[o * R + r] * a[r * place.in + i];
  }
  return all;
}

/// `modules`: number of modules with an adapter.
template <typename Options>
void check_adapted(const Options& options, const ReferenceSamples& samples, const LoraOptions& adapters,
                   std::size_t modules) {
  ModelRun adapted(device_of(2, true), options, 3, with_adapters(adapters)), whole(device_of(2, true), options, 3);
  const ReferenceParameters parameters = adapted.reference_parameters();
  const bool inputs_first = std::is_same_v<Options, GptOptions>;
  whole.set_parameters(merged(parameters, adapters, inputs_first));
  CHECK(adapted.forward(samples, 1.0 / 100) == doctest::Approx(whole.forward(samples, 1.0 / 100)).epsilon(1e-5));
  adapted.backward(false);
  whole.backward(false);
  const auto gradients = adapted.gradients_by_name(), of_weights = whole.gradients_by_name();
  const auto R = static_cast<std::size_t>(adapters.rank);
  std::size_t found = 0;
  for (const auto& [tensor, gradient] : gradients) {
    CAPTURE(tensor);
    REQUIRE(is_adapter(tensor));
    const std::string module = tensor.substr(0, tensor.find(".lora_"));
    const auto &a = parameters.at(lora_a(module)), &b = parameters.at(lora_b(module));
    const auto& d_weight = of_weights.at(module + ".weight");
    const std::size_t in = a.size() / R, out = b.size() / R;
    const Place place{inputs_first, in, out};
    std::vector<double> expected(gradient.size(), 0.0);
    const bool is_a = tensor == lora_a(module);
    found += is_a;
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i)
        for (std::size_t r = 0; r < R; ++r) {
          if (is_a) expected[r * in + i] += adapters.factor() * b[o * R + r] * d_weight[place(o, i)];
          if (!is_a) expected[o * R + r] += adapters.factor() * a[r * in + i] * d_weight[place(o, i)];
        }
    CHECK(norm(expected) > 0);
    check_close(gradient, expected, 1e-4);
  }
  CHECK(found == modules);
}

template <typename Options>
void check_dropping(const Options& options, LoraOptions adapters) {
  const ReferenceSamples samples = made_up_samples(options, 40, 3);
  adapters.dropout = 0.4f;
  ModelRun run(device_of(2, true), options, 3, with_adapters(adapters));
  const ReferenceParameters parameters = run.reference_parameters();
  const double loss = run.forward(samples, 1);
  run.backward(false);
  const auto gradients = run.gradients_by_name();
  CHECK(run.forward(samples, 1) == loss);
  // Without training there is no dropout.
  CHECK(std::abs(run.forward(samples, 1, 1, false) - loss) > 1e-3);
  for (const auto& [tensor, gradient] : gradients) {
    CAPTURE(tensor);
    const double length = norm(gradient), step = 3e-3;
    const auto at = [&](double distance) {
      ReferenceParameters moved = parameters;
      for (std::size_t i = 0; i < gradient.size(); ++i) moved.at(tensor)[i] += distance * gradient[i] / length;
      run.set_parameters(moved);
      return run.forward(samples, 1);
    };
    CHECK((at(step) - at(-step)) / (2 * step) == doctest::Approx(length).epsilon(0.02));
  }
}

}  // namespace

TEST_CASE("a model with adapters equals the one with merged weights, and its gradients follow from those") {
  tests::Share share(on_gpu_here() ? 2 : 1, 3);
  const auto check = [&](const auto& plain, const LoraOptions& adapters, int modules) {
    for (const int tile : {1, 4}) {
      if (!share.takes()) continue;
      CAPTURE(tile);
      const auto options = tile > 1 ? in_tiles(plain, tile) : plain;
      check_adapted(options, made_up_samples(options, 40, 3), adapters, static_cast<std::size_t>(modules));
    }
  };
  for (const auto& [name, options] : family()) {
    CAPTURE(name);
    const LoraOptions& adapters = options.fused ? everywhere_in_phi : everywhere;
    check(options, adapters, static_cast<int>(adapters.targets.size()) * options.layers);
  }
  for (const float dropout : {0.0f, 0.2f}) check(small_gpt(dropout), everywhere_in_gpt, 8);
  for (const auto& [name, options] : bert_family()) {
    CAPTURE(name);
    check(options, everywhere_in_bert, 6 * options.layers + 1);
  }
}

TEST_CASE("the gradients of adapters with dropout are the slopes of the loss") {
  check_dropping(small_llama(), everywhere);
  check_dropping(small_gpt(), everywhere_in_gpt);
  BertOptions bert = small_bert();
  bert.targets = 5;
  check_dropping(bert, everywhere_in_bert);
}

TEST_CASE("adapters of tiles have the dropout of undivided matrices, and follow fp32 in half precision") {
  LoraOptions dropping = everywhere;
  dropping.dropout = 0.4f;
  const auto run = [&](Precision precision, int tile) {
    const LlamaOptions options = in_tiles(small_llama(precision), tile);
    ModelRun model(device_of(2, true), options, 3, with_adapters(dropping));
    const double loss = model.forward(made_up_samples(options, 40, 3), 1);
    model.backward(false);
    model.forward(made_up_samples(options, 43, 3), 1);
    model.backward(true);
    return std::pair{loss, model.gradients_by_name()};
  };
  const auto [loss, gradients] = run({}, 1);
  for (const auto& [precision, error] :
       {std::pair{Precision{}, 1e-5}, {Precision{runtime::DType::bf16, runtime::DType::f32}, 0.15}}) {
    for (const int tile : {2, 4}) {
      CAPTURE_ALL(to_string(precision.compute), tile);
      const auto [tiled_loss, tiled_gradients] = run(precision, tile);
      CHECK(tiled_loss == doctest::Approx(loss).epsilon(error / 10));
      for (const auto& [tensor, gradient] : gradients) {
        CAPTURE(tensor);
        check_close(tiled_gradients.at(tensor), gradient, error);
      }
    }
  }
}

TEST_CASE("adapters start like PEFT's, are the only trained parameters, and are in the requested modules") {
  const LlamaOptions options = small_llama();
  const Architecture model = make_model(options, with_adapters({.rank = 2, .targets = {"q_proj", "v_proj"}}));
  std::size_t adapters = 0;
  for (const UnitSpec& unit : model.units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      CHECK(unit.trained == is_adapter(parameter.name));
      if (!unit.trained) continue;
      ++adapters;
      const bool a = parameter.name.ends_with("lora_A.weight");
      CHECK(parameter.initializer.kind == (a ? Initializer::Kind::uniform : Initializer::Kind::zeros));
      if (a) CHECK(parameter.initializer.scale == doctest::Approx(1 / std::sqrt(options.hidden)));
      CHECK((tests::has(parameter.name, "q_proj") || tests::has(parameter.name, "v_proj")));
    }
  }
  CHECK(adapters == 4 * static_cast<std::size_t>(options.layers));
  CHECK(model.trained_parameters() == static_cast<std::size_t>(options.layers) * 2 * 2 *
                                          static_cast<std::size_t>(options.hidden + options.hidden));
  CHECK(model.first_trained_layer() == 1);
  const auto refused = [](const ModelSizes& sizes, const LoraOptions& adapted, auto... words) {
    CAPTURE_ALL(words...);
    const Error error = tests::error_of([&] { static_cast<void>(make_model(sizes, with_adapters(adapted))); });
    CHECK(tests::says(error, words...));
    return error.code();
  };
  CHECK(refused(options, {.targets = {"q_proj", "c_attn"}}, "`lora_targets` c_attn",
                "use one of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj") == ErrorCode::usage);
  refused(ResnetOptions{}, {.targets = {"q_proj"}},
          "`lora_rank`: models of the family wide-resnet do not support adapters");
  refused(ResnetOptions{}, {.targets = {"q_proj"}, .origin = "a/adapter_config.json"},
          "a/adapter_config.json: models of the family");
  refused(small_bert(), {.targets = {"q_proj", "dense"}}, "`lora_targets` q_proj",
          "use one of dense, key, query, value");
  refused(small_gpt(), {.targets = {"c_attn", "q_proj"}}, "`lora_targets` q_proj",
          "use one of c_attn, c_fc, c_proj");
  refused(options, {.targets = {"c_attn"}, .origin = "a.json"}, "a.json: llama",
          "has no matrix 'c_attn' for adapters");
}

TEST_CASE("an adapter's configuration reads back as written, and unsupported entries are refused by key") {
  const tests::TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("adapter_config.json", text);
    return read_adapter_config(folder.path());
  };
  const LoraOptions options{.rank = 4, .alpha = 10, .dropout = 0.05f, .targets = {"mlp.up_proj", "q_proj"}};
  const std::string text = adapter_config_json(options, "base", LlamaOptions());
  const LoraOptions stored = read(text);
  CHECK(stored.rank == 4);
  CHECK(stored.alpha == 10);
  CHECK(stored.dropout == 0.05f);
  CHECK(stored.targets == options.targets);
  const std::string begin = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":)";
  tests::check_has(text, {R"("lora_dropout": 0.05,)", R"("task_type": "CAUSAL_LM")", R"("fan_in_fan_out": false)"});
  const std::string of_masks = adapter_config_json(options, "base", BertOptions());
  CHECK(of_masks.find("\"task_type\": null") != std::string::npos);
  CHECK(read(of_masks).targets == options.targets);
  // PEFT's flag for weights that are stored as [in, out].
  const std::string of_gpt = adapter_config_json(options, "base", GptOptions());
  CHECK(of_gpt.find("\"fan_in_fan_out\": true") != std::string::npos);
  CHECK(read(of_gpt).targets == options.targets);
  CHECK(read(begin + R"(["v_proj","q_proj","v_proj"],"init_lora_weights":"gaussian"})").targets ==
        std::vector<std::string>{"q_proj", "v_proj"});
  CHECK_NOTHROW(static_cast<void>(read(begin + R"(["q_proj"]})")));
  CHECK(read(begin + R"(["q_proj"],"modules_to_save":null})").whole.empty());
  BertOptions classes = small_bert();
  classes.classes = 3;
  LoraOptions beside = options;
  beside.whole = {"classifier", "pooler"};
  const std::string of_classes = adapter_config_json(beside, "base", classes);
  CHECK(of_classes.find("\"task_type\": \"SEQ_CLS\"") != std::string::npos);
  CHECK(read(of_classes).whole == beside.whole);
  for (const auto& [config, key] :
       {std::pair{begin + R"(["q_proj"],"use_rslora":true})", "use_rslora"},
        {begin + R"(["q_proj"],"modules_to_save":"classifier"})", "modules_to_save"},
        {begin + R"(["q_proj"],"rank_pattern":{"k":2}})", "rank_pattern"},
        {begin + R"("all-linear"})", "target_modules"},
        {begin + R"([]})", "target_modules"},
        {begin + R"(["q_proj"],"init_lora_weights":"pissa_niter_4"})", "pissa_niter_4"},
        {begin + R"(["q_proj"],"layer_replication":[[0,2]]})", "each layer of the base"},
        {begin + R"(["q_proj"],"alora_invocation_tokens":[5]})", "at all positions"},
        {begin + R"(["q_proj"],"use_qalora":true})", "use_qalora"},
        {begin + R"(["q_proj"],"fan_in_fan_out":1})", "fan_in_fan_out"},
        {std::string(R"({"peft_type":"LORA","r":65537})"), "ranks of at most 65536"},
        {std::string(R"({"peft_type":"IA3"})"), "peft_type"}}) {
    CAPTURE(config);
    CHECK(tests::says(tests::error_of([&] { static_cast<void>(read(config)); }), ErrorCode::data, key));
  }
}

TEST_CASE("with adapters a classification head is trained completely, or only the named part of it") {
  BertOptions bert = small_bert();
  bert.classes = 3;
  const auto trained = [&](std::vector<std::string> whole, const std::string& origin = {}) {
    std::vector<std::string> names;
    const Architecture model = make_model(
        bert,
        with_adapters({.rank = 2, .targets = {"query", "dense"}, .whole = std::move(whole), .origin = origin}));
    for (const UnitSpec& unit : adapter_units(model.units()))
      for (const ParameterSpec& parameter : unit.parameters)
        if (!is_adapter(parameter.name)) names.push_back(parameter.name);
    for (const UnitSpec& unit : base_units(model.units()))
      for (const ParameterSpec& parameter : unit.parameters) CHECK_FALSE(is_adapter(parameter.name));
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(trained({}).empty());
  CHECK(trained({"classifier"}) == Names{"classifier.weight", "classifier.bias"});
  CHECK(trained({"classifier", "score"}, "a.json") == Names{"classifier.weight", "classifier.bias"});
  CHECK(trained({"classifier", "pooler"}) ==
        Names{"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"});
  const auto refused = [&](const std::function<void()>& make, std::string_view words) {
    const Error error = tests::error_of(make);
    CHECK(error.code() == ErrorCode::usage);
    CHECK(tests::says(error, words));
  };
  refused([&] { trained({"classifier", "score"}); }, "has no module 'score'");
  refused([&] { trained({"score"}, "a.json"); }, "a.json: its 'modules_to_save': the classification head of bert");
  refused([&] { trained({"query"}); }, "'query'");
  // Matches a pooler's and blocks' modules: those would be trained as well.
  refused([&] { trained({"classifier", "dense"}); }, "has no module 'dense'");
  refused([&] { trained({"classifier", "dense", "score"}, "a.json"); }, "'dense' or 'score'");
  refused(
      [] {
        static_cast<void>(make_model(small_bert(), with_adapters({.targets = {"query"}, .whole = {"decoder"}})));
      },
      "`lora_whole` decoder: bert");
}

TEST_CASE("an adapter of another base model is refused, with the first tensor that one of them lacks") {
  LlamaOptions shallow = small_llama(), deep = shallow;
  deep.layers = shallow.layers + 1;
  const auto adapters = [](const LlamaOptions& options) {
    return adapter_units(make_model(options, with_adapters({.rank = 2, .targets = {"q_proj"}})).units());
  };
  const auto refusal = [&](const LlamaOptions& stored, const LlamaOptions& model) {
    const tests::TemporaryFolder folder;
    std::vector<UnitSpec> named = adapters(stored);
    std::transform(named.begin(), named.end(), named.begin(), in_peft_names);
    const std::vector<TensorToStore> tensors = tensors_of(named);
    tests::write_tensors(folder.path() / adapter_weights_name, tensors,
                         std::vector<float>(tests::elements_of(tensors)));
    return tests::error_of([&] { static_cast<void>(open_adapter(folder.path(), adapters(model))); });
  };
  const std::string last = "model.layers." + std::to_string(shallow.layers) + ".self_attn.q_proj.lora_A.weight";
  CHECK(tests::says(refusal(deep, shallow), "does not fit this base model, which has no tensor"));
  CHECK(tests::says(refusal(deep, shallow), last));
  CHECK(tests::says(refusal(shallow, deep), last + "' needs shape"));
  CHECK(tests::says(refusal(shallow, deep), "the file has no such tensor"));
}

TEST_CASE_TEMPLATE("adapters are merged into weights that are split into any tiles and pieces", Options,
                   LlamaOptions, GptOptions) {
  constexpr bool of_gpt = std::is_same_v<Options, GptOptions>;
  const LoraOptions& adapters = of_gpt ? everywhere_in_gpt : everywhere;
  for (const int tile : {1, 2}) {
    CAPTURE(tile);
    Options small;
    if constexpr (of_gpt) small = small_gpt();
    if constexpr (!of_gpt) small = small_llama();
    const Options options = tile > 1 ? in_tiles(small, tile) : small;
    ModelRun run(device_of(2, true), options, 3, with_adapters(adapters));
    const ReferenceParameters expected = merged(run.reference_parameters(), adapters, of_gpt);
    const auto units = make_model(options, with_adapters(adapters)).units();
    const UnitSource read = weights_of(run);
    const AdapterMerge merge(adapters, options, adapter_units(units), read);
    for (const UnitSpec& unit : base_units(units)) {
      for (const std::size_t piece : {std::size_t{7}, unit.elements()}) {
        std::vector<float> all(unit.elements());
        for (std::size_t begin = 0; begin < all.size(); begin += piece) {
          const auto values = std::span(all).subspan(begin, std::min(piece, all.size() - begin));
          read(unit, begin, values);
          merge.add(unit, begin, values);
        }
        ModelRun::for_each_element(
            unit, [&](const ParameterSpec& parameter, std::size_t in_tensor, std::size_t at) {
              CAPTURE(parameter.name);
              CHECK(all[at] == doctest::Approx(expected.at(parameter.name)[in_tensor]).epsilon(1e-5));
            });
      }
    }
  }
}
