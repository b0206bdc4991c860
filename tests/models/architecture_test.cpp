#include "models/core/architecture.hpp"
#include "models/families/model.hpp"
#include "runtime/base/philox.hpp"
#include "tests/test.hpp"

#include <bit>

using namespace ranvier;
using namespace ranvier::models;
using ranvier::tests::error_of;

namespace {

/// Ends of the stages of the best split. Among equally good ones, its earliest stages are the fullest.
std::vector<std::size_t> best_cut(const std::vector<double>& costs, int stages) {
  std::vector<std::size_t> best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::uint32_t cuts = 0; cuts < 1u << (costs.size() - 1); ++cuts) {  // bit i: layer i ends a stage
    if (std::popcount(cuts) != stages - 1) continue;
    std::vector<std::size_t> ends;
    double most = 0, sum = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      sum += costs[i];
      most = std::max(most, sum);
      if (i + 1 < costs.size() && (cuts >> i & 1) == 0) continue;
      ends.push_back(i + 1);
      sum = 0;
    }
    if (most < best_cost || (most == best_cost && ends > best)) {
      best_cost = most;
      best = ends;
    }
  }
  return best;
}

}  // namespace

TEST_CASE("a split is the best of all and fills the earliest stages") {
  const auto key = runtime::philox_key(3, runtime::RandomPurpose::test);
  for (std::uint32_t round = 0; round < 300; ++round) {
    CAPTURE(round);
    const auto bits = runtime::philox(key, {round, 0, 0, 0});
    const std::size_t layers = 1 + bits[0] % 9;
    const int stages = 1 + static_cast<int>(bits[1] % layers);
    std::vector<double> costs;  // small integers: sums are exact, ties and zeros are frequent
    for (std::uint32_t i = 0; i < layers; ++i) costs.push_back(runtime::philox(key, {round, i, 1, 0})[0] % 5);
    std::vector<std::size_t> ends;
    std::size_t begin = 0;
    for (const LayerRange& range : balance(costs, stages)) {
      CHECK(range.begin == begin);
      begin = range.end;
      ends.push_back(range.end);
    }
    CHECK(ends == best_cut(costs, stages));
  }
}

TEST_CASE("rounding of costs never loses a layer") {
  const std::vector<double> costs(97, 0.1);
  for (const int stages : {1, 2, 7, 48, 96, 97}) {
    const auto ranges = balance(costs, stages);
    REQUIRE(ranges.size() == static_cast<std::size_t>(stages));
    CHECK(ranges.back().end == costs.size());
    for (const LayerRange& range : ranges) CHECK(range.begin < range.end);
  }
}

TEST_CASE("more stages than layers is a usage error") {
  CHECK(error_of([] { static_cast<void>(balance({1, 2}, 3)); }).code() == ErrorCode::usage);
  CHECK(error_of([] { static_cast<void>(balance({}, 1)); }).code() == ErrorCode::usage);
  CHECK(error_of([] { static_cast<void>(balance({1}, 0)); }).code() == ErrorCode::usage);
}

TEST_CASE("parameters of a unit start at aligned offsets, stored elements included") {
  const UnitSpec unit{"u", {{"a", {3, 5}}, {"b", {2}, {}, false, 40}, {"c", {32}}}};
  CHECK(unit.parameters[0].elements() == 15);
  CHECK(unit.offset(0) == 0);
  CHECK(unit.offset(1) == 32);
  CHECK(unit.offset(2) == 96);
  CHECK(unit.elements() == 128);
}

TEST_CASE("the presets have the sizes of their papers") {
  for (const auto& [name, billions, error] : {std::tuple{"gpt2-small", 0.124439808, 1e-12},
                                              {"gpt2-medium", 0.354823168, 1e-12},
                                              {"gpt2-large", 0.774030080, 1e-12},
                                              {"gpt2-xl", 1.557611200, 1e-12},
                                              {"bert-base", 0.109514298, 1e-12},     // BertForMaskedLM's
                                              {"roberta-base", 0.124697433, 1e-12},  // RobertaForMaskedLM's
                                              {"gpt-7b", 7.0, 0.05},
                                              {"gpt-12b", 12.0, 0.02},
                                              {"gpt-24b", 24.0, 0.03},
                                              {"gpt-50b", 50.0, 0.03},
                                              {"gpt-100b", 100.0, 0.03},
                                              // MiCS, Table 1: its names differ from its sizes by up to 8 %.
                                              {"bert-10b", 10.0, 0.04},
                                              {"bert-15b", 15.0, 0.04},
                                              {"bert-20b", 20.0, 0.04},
                                              {"bert-50b", 50.0, 0.04},
                                              {"roberta-20b", 20.0, 0.04},
                                              {"gpt2-20b", 20.0, 0.04}}) {
    CAPTURE(name);
    const auto sizes = named_model(name);
    REQUIRE(sizes.has_value());
    const double parameters = static_cast<double>(make_model(*sizes).parameters());
    CHECK(parameters / (billions * 1e9) == doctest::Approx(1).epsilon(error));
  }
  CHECK(!named_model("gpt-13b").has_value());
}

TEST_CASE("a GPT counts six operations per parameter and token, plus attention") {
  GptOptions options{.layers = 3, .hidden = 64, .heads = 4, .vocab_size = 100, .sequence_length = 32};
  const Architecture gpt = make_gpt(options);
  const double T = 32;
  CHECK(gpt.flops_per_sample() == 6.0 * static_cast<double>(gpt.parameters()) * T + 12.0 * 3 * 64 * T * T);
  CHECK(gpt.layers.size() == 5);
  CHECK(gpt.layers.front()->output_elements(32) == 32 * 64);
  CHECK(gpt.layers.back()->output_elements(32) == 0);
}

TEST_CASE("a GPT's units are declared once, with the same shared table in embedding and head") {
  const GptOptions options{.layers = 2, .hidden = 8, .heads = 2, .vocab_size = 11, .sequence_length = 6};
  const Architecture gpt = make_gpt(options);
  std::vector<std::string> names;
  for (const UnitSpec& unit : gpt.units()) names.push_back(unit.name);
  CHECK(names == std::vector<std::string>{"wte", "wpe", "h.0", "h.1", "ln_f"});
  CHECK(gpt.layers.front()->units()[0] == gpt.layers.back()->units()[0]);
  const ParameterSpec table = gpt.units()[0].parameters[0];
  CHECK(table.shape == std::vector<std::size_t>{11, 8});
  CHECK(table.stored_elements == 64 * 8);
}

TEST_CASE("decay applies to matrices and embeddings, and residual projections start with smaller values") {
  const GptOptions options{.layers = 8, .hidden = 8, .heads = 2, .vocab_size = 11, .sequence_length = 6};
  std::set<std::string> names;
  for (const UnitSpec& unit : make_gpt(options).units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      names.insert(parameter.name);
      const bool matrix = parameter.shape.size() == 2;
      CHECK(parameter.decays == matrix);
      const bool norm_weight = !matrix && parameter.name.ends_with(".weight");
      const bool projection = matrix && parameter.name.find("c_proj") != std::string::npos;
      CHECK(parameter.initializer.kind == (matrix        ? Initializer::Kind::normal
                                           : norm_weight ? Initializer::Kind::ones
                                                         : Initializer::Kind::zeros));
      if (matrix) CHECK(parameter.initializer.scale == doctest::Approx(projection ? 0.005 : 0.02));
    }
  }
  CHECK(names.size() == 2 + 8 * 12 + 2);
  CHECK(names.count("h.7.attn.c_attn.weight") == 1);
  CHECK(names.count("h.0.mlp.c_proj.bias") == 1);
  CHECK(names.count("ln_f.weight") == 1);
}

TEST_CASE("invalid model sizes are usage errors, and are named with their values") {
  const auto refused = [](const GptOptions& options, const char* words) {
    CHECK(tests::says(error_of([&] { static_cast<void>(make_gpt(options)); }), ErrorCode::usage, words));
  };
  refused({.hidden = 10, .heads = 3}, "`heads` 3");
  refused({.layers = 0}, "layers");
  refused({.vocab_size = -1}, "vocab_size");
  refused({.sequence_length = 0}, "sequence_length");
  refused({.dropout = 1}, "dropout");
}
