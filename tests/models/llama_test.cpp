#include "models/llama.hpp"
#include "runtime/error.hpp"
#include "tests/effort.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/gradient_check.hpp"
#include "tests/models/llama_family.hpp"
#include "tests/models/model_run.hpp"
#include "tests/models/reference_llama.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("losses, activations and gradients of LLaMA and its kin are those of the reference in double precision") {
  for (const auto& [name, options] : family()) {
    CAPTURE(name);
    ModelRun run(device_of(2, true), options, 3);
    const auto samples = made_up_samples(options, 40, 3);
    const double factor = 1.0 / 100;
    const double loss = run.forward(samples, factor);
    run.backward(false);

    const ReferenceParameters parameters = run.reference_parameters();
    std::vector<std::vector<double>> activations;
    const double expected = ReferenceLlama(options, parameters).loss(samples, &activations);
    CHECK(loss == doctest::Approx(expected * factor).epsilon(allowed(1e-6)));
    for (std::size_t layer = 0; layer < activations.size(); ++layer) {
      const TypedArray output = run.output(layer);
      REQUIRE(output.size() == activations[layer].size());
      const double scale = norm(activations[layer]) / std::sqrt(static_cast<double>(output.size()));
      double worst = 0;
      for (std::size_t i = 0; i < output.size(); ++i)
        worst = worse(worst, std::abs(output[i] - activations[layer][i]));
      CHECK(worst < 2e-5 * std::max(1.0, scale));
    }

    const std::size_t stride = test::sanitized ? 151 : tests::long_run() ? 1 : 7;
    const auto gradients = run.gradients_by_name();
    for (const auto& [tensor, slopes] : differences<ReferenceLlama>(options, parameters, samples, factor, stride)) {
      CAPTURE(tensor);
      const double scale = norm(gradients.at(tensor)) / std::sqrt(static_cast<double>(gradients.at(tensor).size()));
      CHECK(scale > 5e-6);
      double worst = 0;
      for (std::size_t i = 0; i < slopes.size(); ++i)
        worst = worse(worst, std::abs(gradients.at(tensor)[i * stride] - slopes[i]) / scale);
      CHECK(worst < 2e-4);
    }
    for (const auto& [unit, gradient] : run.gradients()) CHECK(gaps_untouched(unit, gradient));
  }
}

TEST_CASE("a LLaMA in half precision follows fp32 within its rounding, with fp32 and with half gradients") {
  for (const Precision precision : {Precision{DType::bf16, DType::f32}, Precision{DType::bf16, DType::bf16},
                                    Precision{DType::f16, DType::f16}}) {
    CAPTURE(to_string(precision.compute));
    CAPTURE(to_string(precision.gradient));
    const auto kin = family(precision);
    const auto exact_kin = family();
    for (std::size_t member = 0; member < kin.size(); ++member) {
      CAPTURE(kin[member].first);
      const auto samples = made_up_samples(kin[member].second, 40, 3);
      ModelRun run(device_of(2, true), kin[member].second, 3),
          exact(device_of(2, true), exact_kin[member].second, 3);
      exact.set_parameters(run.reference_parameters());
      const float loss_scale = precision.compute == DType::f16 ? 1024 : 1;
      const double tolerance = precision.compute == DType::bf16 ? 0.12 : 0.015;
      const double loss = run.forward(samples, 1.0 / 100, loss_scale);
      run.backward(false);
      CHECK(loss == doctest::Approx(exact.forward(samples, 1.0 / 100)).epsilon(tolerance / 10));
      exact.backward(false);
      const auto gradients = run.gradients_by_name();
      for (const auto& [tensor, expected] : exact.gradients_by_name()) {
        CAPTURE(tensor);
        std::vector<double> error;
        for (std::size_t i = 0; i < expected.size(); ++i)
          error.push_back(gradients.at(tensor)[i] / loss_scale - expected[i]);
        CHECK(norm(error) < tolerance * norm(expected));
      }
    }
  }
}

TEST_CASE("neither the number of threads nor the kind of device changes a bit of a LLaMA") {
  for (const Precision precision : {Precision{}, Precision{DType::bf16, DType::f32}}) {
    LlamaOptions options = small_llama(precision);
    options.hidden = 80;
    options.heads = 5;
    options.inner = 96;
    options.sequence_length = 45;
    options.qkv_bias = true;
    options.qk_norm = true;
    const auto samples = made_up_samples(options, 3, 3);
    std::optional<double> loss;
    std::vector<TypedArray> first;
    for (const auto& [threads, at_once] : {std::pair{1, true}, {2, false}, {3, true}}) {
      if (repeats(threads, at_once)) continue;
      ModelRun run(device_of(threads, at_once), options, 3);
      const double this_loss = run.forward(samples, 1.0 / 100);
      run.backward(false);
      run.backward(true);
      if (!loss) {
        loss = this_loss;
        for (const auto& [unit, gradient] : run.gradients()) first.push_back(gradient);
      }
      CHECK(this_loss == *loss);
      for (std::size_t i = 0; i < first.size(); ++i) {
        CAPTURE(run.gradients()[i].first.name);
        CHECK(same_bits(run.gradients()[i].second, first[i]));
      }
    }
  }
}

TEST_CASE("a LLaMA's gradients of microbatches add up to those of all samples at once") {
  LlamaOptions options = small_llama();
  options.qkv_bias = options.out_bias = options.qk_norm = true;
  ModelRun together(device_of(2, true), options, 3), apart(device_of(2, true), options, 2);
  const double factor = 1.0 / 35;
  const double loss = together.forward(made_up_samples(options, 10, 3), factor);
  together.backward(false);
  double sum = 0;
  for (const auto& [first, count] : {std::pair{10, 2}, std::pair{12, 1}}) {
    sum += apart.forward(made_up_samples(options, first, count), factor);
    apart.backward(first != 10);
  }
  CHECK(sum == doctest::Approx(loss).epsilon(allowed(1e-7)));
  const auto expected = together.gradients_by_name();
  for (const auto& [name, gradient] : apart.gradients_by_name()) {
    CAPTURE(name);
    std::vector<double> error;
    for (std::size_t i = 0; i < gradient.size(); ++i) error.push_back(gradient[i] - expected.at(name)[i]);
    CHECK(norm(error) <= allowed(2e-6) * norm(expected.at(name)));
  }
}

TEST_CASE("a LLaMA's units and tensors have the names, shapes and decay of the checkpoints") {
  LlamaOptions options = small_llama();
  options.heads = 6;
  options.key_heads = 2;
  options.head_size = 4;
  options.qkv_bias = options.qk_norm = true;
  const Architecture llama = make_llama(options);
  std::vector<std::string> units;
  std::map<std::string, ParameterSpec> tensors;
  for (const UnitSpec& unit : llama.units()) {
    units.push_back(unit.name);
    for (const ParameterSpec& parameter : unit.parameters) tensors.emplace(parameter.name, parameter);
  }
  CHECK(units == std::vector<std::string>{"model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head",
                                          "model.norm"});
  using Shape = std::vector<std::size_t>;
  for (const auto& [name, shape] :
       std::map<std::string, Shape>{{"model.embed_tokens.weight", {13, 12}},
                                    {"model.layers.1.input_layernorm.weight", {12}},
                                    {"model.layers.1.self_attn.q_proj.weight", {24, 12}},
                                    {"model.layers.1.self_attn.k_proj.weight", {8, 12}},
                                    {"model.layers.1.self_attn.v_proj.weight", {8, 12}},
                                    {"model.layers.1.self_attn.q_proj.bias", {24}},
                                    {"model.layers.1.self_attn.k_proj.bias", {8}},
                                    {"model.layers.1.self_attn.v_proj.bias", {8}},
                                    {"model.layers.1.self_attn.q_norm.weight", {4}},
                                    {"model.layers.1.self_attn.k_norm.weight", {4}},
                                    {"model.layers.1.self_attn.o_proj.weight", {12, 24}},
                                    {"model.layers.1.post_attention_layernorm.weight", {12}},
                                    {"model.layers.1.mlp.gate_proj.weight", {20, 12}},
                                    {"model.layers.1.mlp.up_proj.weight", {20, 12}},
                                    {"model.layers.1.mlp.down_proj.weight", {12, 20}},
                                    {"model.norm.weight", {12}},
                                    {"lm_head.weight", {13, 12}}}) {
    CAPTURE(name);
    REQUIRE(tensors.contains(name));
    CHECK(tensors.at(name).shape == shape);
    CHECK(tensors.at(name).decays == (shape.size() > 1));
  }
  CHECK(tensors.size() == 3 + 2 * 14);

  options.tied = true;
  CHECK(make_llama(options).parameters() + 13 * 12 == llama.parameters());
  options.heads = 5;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_llama(options)), doctest::Contains("key_heads"), Error);
  options.heads = 6;
  options.head_size = 514;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_llama(options)), doctest::Contains("head_size"), Error);
}
