// Complete jobs of the LLaMA family: like GPT's, they give the same bits on every grid, with any sharding and any
// location of states.
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_llama.hpp"

#include <doctest/doctest.h>

#include <utility>

using namespace ranvier;
using actors::TierKind;

namespace {

/// With heads that share keys, a window, norms of heads and biases.
models::LlamaOptions whole_llama(bool tied) {
  models::LlamaOptions options = tests::small_llama();
  options.window = 5;
  options.qkv_bias = options.qk_norm = true;
  options.tied = tied;
  return options;
}

/// With enough words for several tiles of the tables.
models::LlamaOptions tiled_llama(bool tied, int tile) {
  models::LlamaOptions options = whole_llama(tied);
  options.vocab_size = 150;
  options.tile = tile;
  return options;
}

tests::JobResult train(models::LlamaOptions llama, const actors::TrainerOptions& options, std::uint64_t seed,
                       tests::Devices devices = tests::Devices::inline_) {
  llama.precision = options.precision;
  return run_simulated(models::make_llama(llama), tests::RandomTokens(llama.sequence_length, llama.vocab_size),
                       options, seed, {}, devices);
}

}  // namespace

TEST_CASE("a LLaMA gives the same bits on every grid, sharded or not, with states anywhere") {
  for (const auto& [tied, name] : {std::pair{false, "ddp"}, {true, "ddp"}, {false, "zero3"}, {true, "zero3"}}) {
    CAPTURE(tied);
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(whole_llama(tied), options, 1);
    for (const int g_inter : {1, 3}) {
      CAPTURE(g_inter);
      options.grid.g_inter = g_inter;
      options.recompute = g_inter == 3 ? 1 : 0;
      options.tiers = {};
      check_same_bits(reference, train(whole_llama(tied), options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, train(whole_llama(tied), options, 3, tests::Devices::delayed));
    }
  }
}

TEST_CASE(
    "a LLaMA in tiles gives the same bits on every grid, with states anywhere, and the losses without tiles") {
  tests::Share share(1, 2);
  for (const auto& [tied, name] : {std::pair{false, "zero3"}, {true, "zero3"}, {true, "ddp"}}) {
    CAPTURE(tied);
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(tiled_llama(tied, 4), options, 1), whole = train(tiled_llama(tied, 1), options, 1);
    for (std::size_t step = 0; step < whole.steps.size(); ++step)
      CHECK(reference.steps[step].loss == doctest::Approx(whole.steps[step].loss).epsilon(1e-6));
    for (const int g_inter : {1, 3}) {
      if (!share.takes()) continue;
      CAPTURE(g_inter);
      options.grid.g_inter = g_inter;
      options.recompute = g_inter == 3 ? 1 : 0;
      options.tiers = {};
      check_same_bits(reference, train(tiled_llama(tied, 4), options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, train(tiled_llama(tied, 4), options, 3, tests::Devices::delayed));
    }
  }
}

TEST_CASE("a LLaMA gives the same bits under every schedule, in chunks, and in every precision") {
  for (const auto compute : {runtime::DType::f32, runtime::DType::bf16, runtime::DType::f16}) {
    CAPTURE(runtime::to_string(compute));
    auto options = tests::small_run();
    options.grid = {1, 2};
    tests::set_precision(options, compute);
    const auto reference = train(whole_llama(true), options, 1);
    std::uint64_t seed = 2;
    for (const auto& [name, order] : tests::pipeline_orders(options)) {
      CAPTURE(name);
      tests::check_same_bits(reference, train(whole_llama(true), order, seed++));
    }
  }
}
