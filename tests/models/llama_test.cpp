#include "models/families/llama.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE(
    "losses, activations and gradients of LLaMA and related families equal the reference in double precision") {
  check_references(family(), stride_of(7, 151));
}

TEST_CASE(
    "a LLaMA in tiles equals the reference in double precision, and the model without tiles but for rounding") {
  check_tiled_references(family(), stride_of(31, 607));
}

TEST_CASE(
    "a LLaMA in half precision follows fp32 within its rounding, with fp32 and half gradients, tiled or not") {
  tests::Share complete(on_gpu_here() ? 4 : 2, 3), tiled(on_gpu_here() ? 6 : 3, 6);
  for_each_half(family, [&](const LlamaOptions& options, const LlamaOptions& exact, double unit) {
    const auto samples = made_up_samples(options, 0, 12);
    const HalfError error{0.0015 * unit, 0.015 * unit};
    if (complete.takes()) check_follows_fp32(options, exact, samples, error);
    if (tiled.takes()) check_follows_fp32(in_tiles(options, 4), in_tiles(exact, 1), samples, error);
  });
}

TEST_CASE("the number of threads and the kind of device do not change any bit of a LLaMA") {
  for (const auto& [precision, tile] : {std::pair{Precision{}, 1}, {Precision{DType::bf16, DType::f32}, 4}}) {
    LlamaOptions options = small_llama(precision);
    options.tile = tile;
    options.hidden = 80;
    options.heads = 5;
    options.inner = 96;
    options.sequence_length = 45;
    options.qkv_bias = true;
    options.qk_norm = true;
    check_bits(options, made_up_samples(options, 3, 3));
  }
}

TEST_CASE("gradients of a LLaMA's microbatches add up to the gradients of all samples at once") {
  LlamaOptions options = small_llama();
  options.qkv_bias = options.out_bias = options.qk_norm = true;
  for (const int tile : {1, 4}) {
    CAPTURE(tile);
    options.tile = tile;
    check_microbatches(options, 3);
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
  for (const UnitSpec& unit : llama.units()) units.push_back(unit.name);
  CHECK(units == std::vector<std::string>{"model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head",
                                          "model.norm"});
  const auto tensors = check_tensors(llama, {{"model.embed_tokens.weight", {13, 12}},
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
                                             {"lm_head.weight", {13, 12}}});
  CHECK(tensors.size() == 3 + 2 * 14);

  options.tied = true;
  CHECK(make_llama(options).parameters() + 13 * 12 == llama.parameters());
  options.heads = 5;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_llama(options)), doctest::Contains("`kv_heads`"), Error);
  options.heads = 6;
  options.head_size = 514;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_llama(options)), doctest::Contains("`head_size`"), Error);
}

TEST_CASE("a LLaMA's matrices are in units of their tiles, and its norms and biases in an undivided one") {
  LlamaOptions options = small_llama();
  options.qkv_bias = true;
  options.tile = 2;
  const Architecture llama = make_llama(options);
  const Layer& block = *llama.layers[1];
  std::map<std::string, Shapes> units;  // shapes by unit and tensor
  for (const UnitSpec& unit : block.units())
    for (const ParameterSpec& parameter : unit.parameters) units[unit.name][parameter.name] = parameter.shape;
  const std::string name = "model.layers.0";
  CHECK(units.size() == 7);
  CHECK(units.at(name).size() == 5);
  for (const auto& [tensor, shape] : units.at(name)) CHECK(shape.size() == 1);
  // 18 of the 36 rows of queries, keys and values, 12 each.
  CHECK(units.at(name + ".self_attn.qkv_proj.0") ==
        Shapes{{name + ".self_attn.q_proj.weight", {12, 12}}, {name + ".self_attn.k_proj.weight", {6, 12}}});
  CHECK(units.at(name + ".self_attn.o_proj.1") == Shapes{{name + ".self_attn.o_proj.weight", {6, 12}}});
  CHECK(units.at(name + ".mlp.1") == Shapes{{name + ".mlp.gate_proj.weight", {10, 12}},
                                            {name + ".mlp.up_proj.weight", {10, 12}},
                                            {name + ".mlp.down_proj.weight", {12, 10}}});
  // One tile at a time, together with the undivided unit.
  const LayerPhases parts = block.parts();
  CHECK(parts.forward.size() == 6);
  CHECK(parts.backward_input.size() == 6);
  CHECK(parts.backward_weight.size() == 7);
  for (const auto& part : parts.forward) CHECK(part.size() == 2);
  for (const auto& part : parts.backward_weight) CHECK(part.size() == 1);

  for (const auto& [tile, words] : {std::pair{3, "`tile` 3 does not divide `ffn_size` 20; use a divisor such as 2"},
                                    {5, "`tile` 5 does not divide `hidden` 12; use a divisor such as 4"}}) {
    options.tile = tile;
    CHECK_THROWS_WITH_AS(static_cast<void>(make_llama(options)), words, Error);
  }
  options.tile = 4;
  options.heads = 3;
  options.key_heads = 1;
  options.head_size = 2;
  CHECK_THROWS_WITH_AS(
      static_cast<void>(make_llama(options)),
      "`tile` 4 does not divide the 10 channels of queries, keys and values; use a divisor such as 2", Error);
}
