// Complete jobs of a GPT in tiles: they give the same bits in any placement. Except for the order of sums, this is the
// result of the model without tiles.
#include "models/core/unit.hpp"
#include "models/families/bert.hpp"
#include "models/families/llama.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;

namespace {

/// With enough words for several tiles of the table.
models::GptOptions gpt_in(int tiles) {
  return {.layers = 3, .hidden = 16, .heads = 2, .vocab_size = 150, .sequence_length = 8, .tile = tiles};
}

actors::TrainerOptions run_of(runtime::GridShape grid) {
  auto options = small_run(grid);
  options.batch_size = 12;
  options.steps = options.learning_rate.steps = 3;
  options.adamw.epsilon = 1e-3;  // keeps steps of tiny gradients small, such as the rounding of zero
  options.eval_every = 2;
  options.eval_samples = options.batch_size;
  return options;
}

/// Weights by tensor, for any partition.
std::map<std::string, std::vector<double>> tensors_of(const models::GptOptions& gpt, const JobResult& job) {
  std::map<std::string, std::vector<double>> tensors;
  const auto architecture = models::make_gpt(gpt);
  for (const models::UnitSpec& unit : architecture.units()) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      const models::ParameterSpec& parameter = unit.parameters[p];
      std::size_t elements = 1;
      for (const std::size_t extent : parameter.tensor_shape()) elements *= extent;
      std::vector<double>& tensor = tensors[parameter.name];
      tensor.resize(elements);
      models::for_each_run(
          parameter, 0, parameter.elements(), [&](std::size_t begin, std::size_t count, std::size_t at) {
            const auto from = job.weights.at(unit.name).begin() + static_cast<std::ptrdiff_t>(unit.offset(p) + at);
            std::copy(from, from + static_cast<std::ptrdiff_t>(count),
                      tensor.begin() + static_cast<std::ptrdiff_t>(begin));
          });
    }
  }
  return tensors;
}

/// Compares losses and weights within 1e-6.
void check_close(const models::GptOptions& gpt, const JobResult& job, const models::GptOptions& whole_gpt,
                 const JobResult& whole) {
  REQUIRE(job.steps.size() == whole.steps.size());
  for (std::size_t s = 0; s < job.steps.size(); ++s) {
    CHECK(job.steps[s].loss == doctest::Approx(whole.steps[s].loss).epsilon(1e-6));
    CHECK(job.steps[s].gradient_norm == doctest::Approx(whole.steps[s].gradient_norm).epsilon(1e-6));
  }
  REQUIRE(job.evaluations.size() == whole.evaluations.size());
  for (std::size_t e = 0; e < job.evaluations.size(); ++e) {
    CHECK(job.evaluations[e] == doctest::Approx(whole.evaluations[e]).epsilon(1e-6));
  }
  const auto tensors = tensors_of(gpt, job);
  for (const auto& [name, expected] : tensors_of(whole_gpt, whole)) {
    CAPTURE(name);
    const std::vector<double>& tensor = tensors.at(name);
    REQUIRE(tensor.size() == expected.size());
    double difference = 0, norm = 0;
    for (std::size_t e = 0; e < expected.size(); ++e) {
      difference += (tensor[e] - expected[e]) * (tensor[e] - expected[e]);
      norm += expected[e] * expected[e];
    }
    CHECK(std::sqrt(difference) <= 1e-6 * std::sqrt(norm));
  }
}

}  // namespace

TEST_CASE("tiles give the result of complete matrices, within the rounding of sums") {
  for (const int g_data : {1, 2}) {
    for (const std::string name : {"ddp", "zero3"}) {
      auto options = run_of({1, g_data});
      options.sharding = collectives::parse_sharding(name);
      const auto whole = run_simulated(gpt_in(1), options, 1);
      for (const int tiles : {2, 4, 16}) {
        INFO("g_data ", g_data, ", name ", name, ", tiles ", tiles);
        check_close(gpt_in(tiles), run_simulated(gpt_in(tiles), options, 2), gpt_in(1), whole);
      }
    }
  }
}

TEST_CASE("tiles give the same bits on every grid, with any sharding, order of messages and location of states") {
  const auto draw_tiles = [](Draw& draw) -> DrawnModel {
    auto gpt = gpt_in(draw.of(2, 4));
    gpt.layers = draw(1, 4);
    gpt.precision = draw_precision(draw);
    gpt.dropout = draw.of(0.0f, 0.1f);
    return {models::make_gpt(gpt), draw_tokens(gpt.vocab_size, draw)};
  };
  check_any_placement(draw_tiles, 48, 500, 6);
}

TEST_CASE("half precision in tiles gives the result without tiles, within its rounding") {
  for (const runtime::DType dtype : {runtime::DType::bf16, runtime::DType::f16}) {
    auto options = run_of({2, 2});
    options.precision = {dtype, runtime::DType::f32};
    options.sharding = collectives::parse_sharding("zero3");
    auto whole_gpt = gpt_in(1), tiled_gpt = gpt_in(4);
    whole_gpt.precision = tiled_gpt.precision = options.precision;
    const auto whole = run_simulated(whole_gpt, options, 1), tiled = run_simulated(tiled_gpt, options, 1);
    for (std::size_t s = 0; s < whole.steps.size(); ++s) {
      CHECK(tiled.steps[s].loss == doctest::Approx(whole.steps[s].loss).epsilon(1e-3));
    }
  }
}

TEST_CASE("buffers for gathered parameters and for a microbatch's gradients shrink with the tiles") {
  const RandomTokens tokens(64, 6144);
  const auto bytes_of = [&](const models::Architecture& architecture, const std::string& what) {
    auto options = run_of({1, 2});
    options.sharding = collectives::parse_sharding("zero3");
    options.prefetch = 0;  // a phase is followed by others of its kind, a layer need not be
    const auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), options, 0);
    std::size_t bytes = 0;
    for (const runtime::MemoryItem& item : plan.memory.items()) {
      if (item.name.starts_with(what)) bytes += item.slot_bytes * item.slots;
    }
    return bytes;
  };
  const auto gpt = [](int tiles) {
    return models::make_gpt(
        {.layers = 8, .hidden = 256, .heads = 4, .vocab_size = 6144, .sequence_length = 64, .tile = tiles});
  };
  const auto llama = [](int tiles) {
    models::LlamaOptions options;
    options.layers = 8;
    options.hidden = 256;
    options.heads = 4;
    options.key_heads = 2;
    options.inner = 768;
    options.vocab_size = 6144;
    options.sequence_length = 64;
    options.tile = tiles;
    return models::make_llama(options);
  };
  // A product of C channels of the head is not split.
  const auto bert = [](int tiles) {
    return models::make_bert({.layers = 8,
                              .hidden = 256,
                              .heads = 4,
                              .inner = 1024,
                              .vocab_size = 6144,
                              .sequence_length = 64,
                              .tile = tiles});
  };
  const auto check = [&](const auto& make, std::size_t stays) {
    for (const std::string what : {"gathered units", "a microbatch's gradients"}) {
      const std::size_t whole = bytes_of(make(1), what);
      for (const int tiles : {2, 4, 8, 16}) {
        INFO("what ", what, ", tiles ", tiles);
        CHECK(bytes_of(make(tiles), what) <= whole / static_cast<std::size_t>(tiles) + stays);
      }
    }
  };
  // The position table and the norms and biases of a few blocks are not split.
  check(gpt, 1 << 18);
  check(llama, 1 << 18);
  check(bert, 5 << 18);
}
