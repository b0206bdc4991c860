#include "tests/models/families.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

using Matrices = std::map<std::string, std::vector<MatrixPart>>;

/// Parameters that have matrices, by name; each of their elements must be in one matrix.
Matrices matrices_of(const Architecture& model) {
  Matrices all;
  for (const UnitSpec& unit : model.units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.matrices.empty()) continue;
      CAPTURE(parameter.name);
      const std::size_t columns = parameter.elements() / parameter.shape.at(0);
      std::vector<int> covered(parameter.elements());
      for (const MatrixPart& part : parameter.matrices)
        for (std::size_t row = 0; row < part.rows; ++row)
          for (std::size_t column = 0; column < part.columns; ++column)
            ++covered.at((part.first_row + row) * columns + part.first_column + column);
      CHECK(covered == std::vector<int>(parameter.elements(), 1));
      all[parameter.name] = parameter.matrices;
    }
  }
  return all;
}

/// Rows below each other, with the same columns.
std::vector<MatrixPart> rows(const std::vector<std::size_t>& sizes, std::size_t columns) {
  std::vector<MatrixPart> parts;
  std::size_t first = 0;
  for (const std::size_t size : sizes) parts.push_back({std::exchange(first, first + size), size, 0, columns});
  return parts;
}

/// A model whose blocks all have `matrices`; the names of block i start with `prefix`, i and a dot.
struct Case {
  std::string name;
  ModelSizes sizes;
  Tuning tuning;
  std::string prefix;
  Matrices matrices;
};

std::vector<Case> cases() {
  const std::string layers = "model.layers.";
  const Family<LlamaOptions> llama = family();
  std::vector<Case> all{{"GPT-2",
                         small_gpt(),
                         {},
                         "h.",
                         {{"attn.c_attn", {{0, 12, 0, 12}, {0, 12, 12, 12}, {0, 12, 24, 12}}},
                          {"attn.c_proj", rows({12}, 12)},
                          {"mlp.c_fc", rows({12}, 48)},
                          {"mlp.c_proj", rows({48}, 12)}}},
                        {"LLaMA 3.1: grouped queries, large heads",
                         llama.at(1).second,
                         {},
                         layers,
                         {{"self_attn.q_proj", rows({24}, 12)},
                          {"self_attn.k_proj", rows({12}, 12)},
                          {"self_attn.v_proj", rows({12}, 12)},
                          {"self_attn.o_proj", rows({12}, 24)},
                          {"mlp.gate_proj", rows({20}, 12)},
                          {"mlp.up_proj", rows({20}, 12)},
                          {"mlp.down_proj", rows({12}, 20)}}},
                        {"Qwen3: norms of heads",
                         llama.at(5).second,
                         {},
                         layers,
                         {{"self_attn.q_proj", rows({16}, 12)},
                          {"self_attn.k_proj", rows({8}, 12)},
                          {"self_attn.v_proj", rows({8}, 12)},
                          {"self_attn.o_proj", rows({12}, 16)},
                          {"mlp.gate_proj", rows({20}, 12)},
                          {"mlp.up_proj", rows({20}, 12)},
                          {"mlp.down_proj", rows({12}, 20)}}},
                        {"Phi-3: fused matrices",
                         llama.at(6).second,
                         {},
                         layers,
                         {{"self_attn.qkv_proj", rows({12, 4, 4}, 12)},
                          {"self_attn.o_proj", rows({12}, 12)},
                          {"mlp.gate_up_proj", rows({20, 20}, 12)},
                          {"mlp.down_proj", rows({12}, 20)}}}};
  Case& adapted = all.emplace_back(all.at(3));
  adapted.name = "adapters of Phi-3";
  adapted.tuning = with_adapters({.rank = 2, .targets = {"qkv_proj", "down_proj"}});
  adapted.matrices.merge(Matrices{{"self_attn.qkv_proj.lora_A", rows({2}, 12)},
                                  {"self_attn.qkv_proj.lora_B", rows({20}, 2)},
                                  {"mlp.down_proj.lora_A", rows({2}, 20)},
                                  {"mlp.down_proj.lora_B", rows({12}, 2)}});
  for (const BertOptions& bert : {small_bert(), classifying_family().at(0).second})
    all.push_back({bert.classifies() ? "BERT that classifies" : "BERT",
                   bert,
                   {},
                   "bert.encoder.layer.",
                   {{"attention.self.query", rows({12}, 12)},
                    {"attention.self.key", rows({12}, 12)},
                    {"attention.self.value", rows({12}, 12)},
                    {"attention.output.dense", rows({12}, 12)},
                    {"intermediate.dense", rows({20}, 12)},
                    {"output.dense", rows({12}, 20)}}});
  return all;
}

}  // namespace

TEST_CASE("Muon has matrices for the weights of blocks and for adapters, each query, key, value and gate apart") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Matrices expected;
    for (int block = 0; block < 2; ++block)
      for (const auto& [name, parts] : c.matrices)
        expected[c.prefix + std::to_string(block) + "." + name + ".weight"] = parts;
    CHECK(matrices_of(make_model(c.sizes, c.tuning)) == expected);
  }
}

TEST_CASE("Muon has a matrix with a row per output channel for every convolution") {
  const Matrices matrices = matrices_of(make_resnet(resnet_family().at(0).second));
  CHECK(matrices.at("conv1.weight") == rows({2}, 27));
  CHECK(matrices.at("layer1.0.conv1.weight") == rows({4}, 2));
  CHECK(matrices.at("layer1.0.conv2.weight") == rows({4}, 36));
  CHECK(matrices.at("layer1.0.conv3.weight") == rows({8}, 4));
  CHECK(matrices.at("layer1.0.downsample.0.weight") == rows({8}, 2));
  const auto is_convolution = [](const auto& each) {
    return tests::has(each.first, "conv") || tests::has(each.first, "downsample.0");
  };
  CHECK(std::ranges::all_of(matrices, is_convolution));
}

TEST_CASE("tiles have matrices if their tensor has") {
  for (const ModelSizes& sizes :
       {ModelSizes(in_tiles(small_gpt(), 2)), ModelSizes(in_tiles(family().at(6).second, 2)),
        ModelSizes(in_tiles(small_bert(), 2))}) {
    const Architecture model = make_model(sizes);
    std::set<bool> found;
    for (const UnitSpec& unit : model.units()) {
      for (const ParameterSpec& parameter : unit.parameters) {
        if (!parameter.tile) continue;
        CAPTURE(parameter.name);
        const bool of_block = parameter.name.find_first_of("0123456789") != std::string::npos;
        CHECK(parameter.matrices.empty() != of_block);
        found.insert(of_block);
      }
    }
    CHECK(found.size() == 2);
    CHECK_FALSE(matrices_of(model).empty());
  }
}
