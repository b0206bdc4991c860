#include "models/llama.hpp"
#include "runtime/error.hpp"
#include "tests/effort.hpp"
#include "tests/models/llama_family.hpp"
#include "tests/models/model_checks.hpp"
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
    check_reference<ReferenceLlama>(run, options, made_up_samples(options, 40, 3),
                                    {.stride = test::sanitized     ? 151u
                                               : tests::long_run() ? 1u
                                                                   : 7u,
                                     .loss_error = allowed(1e-6),
                                     .scaled = true});
  }
}

TEST_CASE("a LLaMA in half precision follows fp32 within its rounding, with fp32 and with half gradients") {
  for (const Precision precision : {Precision{DType::bf16, DType::f32}, Precision{DType::bf16, DType::bf16},
                                    Precision{DType::f16, DType::f16}}) {
    CAPTURE(to_string(precision.compute));
    CAPTURE(to_string(precision.gradient));
    const auto kin = family(precision);
    const auto exact_kin = family();
    const double error = precision.compute == DType::bf16 ? 0.12 : 0.015;
    for (std::size_t member = 0; member < kin.size(); ++member) {
      const auto& [name, options] = kin[member];
      CAPTURE(name);
      check_follows_fp32(options, exact_kin[member].second, made_up_samples(options, 40, 3), {error / 10, error});
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
    BitsOfFirst bits;
    for (const auto& [threads, at_once] : {std::pair{1, true}, {2, false}, {3, true}}) {
      if (repeats(threads, at_once)) continue;
      bits.check(ModelRun(device_of(threads, at_once), options, 3), made_up_samples(options, 3, 3));
    }
  }
}

TEST_CASE("a LLaMA's gradients of microbatches add up to those of all samples at once") {
  LlamaOptions options = small_llama();
  options.qkv_bias = options.out_bias = options.qk_norm = true;
  check_microbatches(options, 3, [&](int first, int count) { return made_up_samples(options, 10 + first, count); });
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
