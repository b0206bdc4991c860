// Whole jobs of the LLaMA family: as GPT's, they train the same bits on every grid, shared out or not, wherever their
// states live.
#include "models/llama.hpp"
#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

#include <utility>

using namespace ranvier;
using actors::TierKind;

namespace {

/// With heads that share keys, a window, norms of heads and biases.
models::LlamaOptions small_llama(bool tied) {
  models::LlamaOptions options;
  options.layers = 3;
  options.hidden = 16;
  options.heads = 4;
  options.key_heads = 2;
  options.window = 5;
  options.inner = 24;
  options.vocab_size = 37;
  options.sequence_length = 8;
  options.qkv_bias = options.qk_norm = true;
  options.tied = tied;
  return options;
}

tests::JobResult train(bool tied, const actors::TrainerOptions& options, std::uint64_t seed,
                       tests::Devices devices = tests::Devices::inline_) {
  const auto llama = small_llama(tied);
  return run_simulated(models::make_llama(llama), tests::RandomTokens(llama.sequence_length, llama.vocab_size),
                       options, seed, {}, devices);
}

}  // namespace

TEST_CASE("a LLaMA trains the same bits on every grid, whole or shared out, wherever its states live") {
  for (const auto& [tied, name] : {std::pair{false, "ddp"}, {true, "ddp"}, {false, "zero3"}, {true, "zero3"}}) {
    CAPTURE(tied);
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(tied, options, 1);
    for (const int g_inter : {1, 3}) {
      CAPTURE(g_inter);
      options.grid.g_inter = g_inter;
      options.recompute = g_inter == 3 ? 1 : 0;
      options.tiers = {};
      check_same_bits(reference, train(tied, options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, train(tied, options, 3, tests::Devices::delayed));
    }
  }
}
