// Complete jobs of BERT and RoBERTa with masked tokens. Like GPT's, they give the same bits on every grid, with any
// sharding and any location of states.
#include "models/families/bert.hpp"
#include "models/text/masked_source.hpp"
#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

using namespace ranvier;
using actors::TierKind;

namespace {

models::BertOptions small_bert(bool roberta, int tile) {
  return {.layers = 3,
          .hidden = 16,
          .heads = 2,
          .inner = 24,
          .vocab_size = 37,
          .sequence_length = 8,
          .roberta = roberta,
          .padding_token = roberta ? 1 : 0,
          .dropout = roberta ? 0.0f : 0.1f,
          .tile = tile,
          .targets = roberta ? 0 : 2};
}

tests::JobResult train(bool roberta, const actors::TrainerOptions& options, std::uint64_t seed,
                       tests::Devices devices = tests::Devices::inline_, bool documents = false, int tile = 1) {
  auto bert = small_bert(roberta, tile);
  bert.precision = options.precision;
  const models::MaskedSource masked(
      std::make_unique<tests::RandomTokens>(bert.sequence_length, bert.vocab_size - 1, 1 << 20, documents),
      {.probability = 0.3, .mask_token = 36, .tokens = 36, .seed = options.seed});
  return run_simulated(models::make_bert(bert), masked, options, seed, {}, devices);
}

}  // namespace

TEST_CASE("a BERT gives the same bits on every grid, sharded or not, with states anywhere") {
  for (const auto& [roberta, name] : {std::pair{false, "ddp"}, {true, "ddp"}, {false, "zero3"}, {true, "zero3"}}) {
    CAPTURE(roberta);
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(roberta, options, 1);
    for (const int g_inter : {1, 3}) {
      CAPTURE(g_inter);
      options.grid.g_inter = g_inter;
      options.recompute = g_inter == 3 ? 1 : 0;
      options.tiers = {};
      check_same_bits(reference, train(roberta, options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, train(roberta, options, 3, tests::Devices::delayed));
    }
  }
}

TEST_CASE(
    "documents with separate positions for a BERT give the same bits on every grid, and other bits than one text") {
  for (const bool roberta : {false, true}) {
    CAPTURE(roberta);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.eval_every = 1;
    options.eval_samples = 5;
    const auto reference = train(roberta, options, 1, tests::Devices::inline_, true);
    CHECK(reference.steps.back().loss != train(roberta, options, 1).steps.back().loss);
    for (const auto policy : {actors::Policy::message_driven, actors::Policy::one_f_one_b, actors::Policy::gpipe}) {
      CAPTURE(static_cast<int>(policy));
      options.policy = policy;
      options.grid.g_inter = 3;
      options.recompute = 1;
      check_same_bits(reference, train(roberta, options, 2, tests::Devices::delayed, true));
    }
  }
}

TEST_CASE("a BERT in tiles gives the same bits on every grid, with states anywhere, and the losses without tiles") {
  for (const auto& [roberta, name] : {std::pair{false, "zero3"}, {true, "ddp"}}) {
    CAPTURE(roberta);
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(roberta, options, 1, tests::Devices::inline_, false, 4),
               whole = train(roberta, options, 1);
    for (std::size_t step = 0; step < whole.steps.size(); ++step)
      CHECK(reference.steps[step].loss == doctest::Approx(whole.steps[step].loss).epsilon(1e-6));
    options.grid.g_inter = 3;
    options.recompute = 1;
    check_same_bits(reference, train(roberta, options, 2, tests::Devices::inline_, false, 4));
    options.tiers = {.parameters = TierKind::host,
                     .optimizer = TierKind::host,
                     .activations = TierKind::host,
                     .bucket_elements = 256};
    check_same_bits(reference, train(roberta, options, 3, tests::Devices::delayed, false, 4));
  }
}

TEST_CASE("a BERT gives the same bits under every schedule, in chunks, and in every precision") {
  for (const auto compute : {runtime::DType::f32, runtime::DType::bf16, runtime::DType::f16}) {
    CAPTURE(runtime::to_string(compute));
    auto options = tests::small_run();
    options.grid = {1, 2};
    tests::set_precision(options, compute);
    const auto reference = train(compute == runtime::DType::bf16, options, 1);
    std::uint64_t seed = 2;
    for (const auto& [name, order] : tests::pipeline_orders(options)) {
      CAPTURE(name);
      check_same_bits(reference, train(compute == runtime::DType::bf16, order, seed++));
    }
  }
}
