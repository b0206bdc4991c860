// Complete jobs whose messages have numbers in blocks: their losses, their bytes, and combinations that are refused.
// Jobs with drawn types and placements are in the tests that use same_bits.hpp.
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/collectives/all_shardings.hpp"
#include "tests/test.hpp"

#include <cmath>

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::tests;
using collectives::parse_sharding;
using collectives::WireType;
using collectives::WireTypes;
using runtime::DType;

namespace {

constexpr models::Precision half{DType::bf16, DType::bf16};

TrainerOptions wire_run(const char* sharding, const WireTypes& wire, const models::Precision& precision = half) {
  TrainerOptions options = small_run({1, 4}, sharding);
  options.node_of = {0, 0, 1, 1};
  options.group_size = 2;
  options.precision = precision;
  options.wire = wire;
  return options;
}

WireTypes all_links(WireType gather, WireType reduce) {
  return {.gather = {.intra_node = gather, .inter_node = gather},
          .reduce = {.intra_node = reduce, .inter_node = reduce}};
}

}  // namespace

TEST_CASE("losses of training with messages in blocks are close to those without, under every sharding") {
  constexpr WireTypes types[] = {
      {.gather = {WireType::int8, WireType::int8}},
      {.reduce = {WireType::int8, WireType::int8}},
      {.reduce = {WireType::int4, WireType::int4}},
      {.gather = {WireType::same, WireType::int8}, .reduce = {WireType::int8, WireType::int4}}};
  tests::Share share(1, 4);
  for (const auto& sharding : all_shardings()) {
    for (const WireTypes& wire : types) {
      if (!share.takes()) continue;
      TrainerOptions options = wire_run("ddp", wire);
      options.sharding = sharding;
      options.steps = options.learning_rate.steps = 10;
      CAPTURE_ALL(to_string(sharding), to_string(wire.gather.inter_node), to_string(wire.reduce.intra_node),
                  to_string(wire.reduce.inter_node));
      const JobResult blocks = run_simulated(in_precision(small_gpt(), half), options, 3);
      options.wire = {};
      const JobResult plain = run_simulated(in_precision(small_gpt(), half), options, 3);
      REQUIRE(blocks.steps.size() == plain.steps.size());
      for (std::size_t s = 0; s < plain.steps.size(); ++s) {
        CHECK(std::abs(blocks.steps[s].loss - plain.steps[s].loss) < 0.03 * plain.steps[s].loss);
        CHECK(std::abs(blocks.steps[s].gradient_norm - plain.steps[s].gradient_norm) <
              0.2 * plain.steps[s].gradient_norm);
      }
      const bool gathers =
          sharding.parameters != collectives::Scope::none || sharding.optimizer > sharding.parameters;
      CHECK((blocks.weights != plain.weights) == (!wire.reduce.same() || gathers));
    }
  }
}

TEST_CASE("parameters are loaded with the rounding of a refresh in blocks") {
  for (const char* sharding : {"zero1", "zero2", "paro-iig", "paro-igg", "paro-nig"}) {
    for (const TierKind tier : {TierKind::device, TierKind::host}) {
      CAPTURE_ALL(std::string(sharding), offload::to_string(tier));
      TrainerOptions options = wire_run(sharding, all_links(WireType::int8, WireType::same));
      options.learning_rate.peak = 0;
      options.tiers.parameters = tier;
      // Steps on the same samples change nothing.
      const JobResult job =
          run_simulated(in_precision(small_gpt(), half), options, 3, {}, options.batch_size, Devices::inline_);
      REQUIRE(job.steps.size() == 2);
      CHECK(job.steps[0].loss == job.steps[1].loss);
      options.wire = {};
      const JobResult plain =
          run_simulated(in_precision(small_gpt(), half), options, 3, {}, options.batch_size, Devices::inline_);
      CHECK(job.steps[0].loss != plain.steps[0].loss);
    }
  }
}

TEST_CASE("an overflow on any rank makes all ranks skip the step if gradients arrive in blocks") {
  const models::Precision fp16{DType::f16, DType::f16};
  tests::Share share(1, 4);
  int faulty = 0;
  for (const auto& sharding : all_shardings()) {
    faulty = (faulty + 1) % 4;
    for (const WireType type : {WireType::int8, WireType::int4}) {
      if (!share.takes()) continue;
      CAPTURE_ALL(to_string(sharding), to_string(type), faulty);
      TrainerOptions options = wire_run("ddp", all_links(WireType::same, type), fp16);
      options.sharding = sharding;
      options.loss_scale = {.scale = 1024, .dynamic = true, .growth_interval = 2};
      options.steps = options.learning_rate.steps = 3;
      options.fault = overflow(faulty, 2);
      const JobResult result = run_simulated(in_precision(small_gpt(), fp16), options, 2);  // all ranks agree
      REQUIRE(result.steps.size() == 3);
      CHECK(!result.steps[0].skipped);
      CHECK(result.steps[1].skipped);
      CHECK(!result.steps[2].skipped);
      CHECK(std::isfinite(result.steps[2].loss));
    }
  }
}

TEST_CASE("messages in blocks have the bytes of their blocks") {
  const models::Architecture gpt = models::make_gpt(in_precision(small_gpt(), half));
  const auto sent = [&](const TrainerOptions& options) {
    const RandomTokens tokens(gpt.positions, 37);
    std::size_t bytes = 0;
    runtime::Simulation simulation(options.grid.ranks(), {.seed = 5});
    WatchedRanks ranks(simulation, gpt, tokens, options, [&](int, int, runtime::Tag tag, std::size_t count) {
      if (tag.channel == runtime::Channel::collective) bytes += count;
    });
    ranks.load_weights(options.seed);
    ranks.run();
    return bytes;
  };
  for (const char* sharding : {"ddp", "zero1", "zero2", "zero3", "mics", "GGN"}) {
    CAPTURE(std::string(sharding));
    TrainerOptions options = wire_run(sharding, {});
    options.node_of = {};
    options.group_size = 4;
    options.tiers.moments = DType::i8;  // pads units to blocks in all jobs
    const std::size_t plain = sent(options);
    options.wire = all_links(WireType::int8, WireType::int8);
    CHECK(sent(options) * 512 == plain * 260);
    options.wire = all_links(WireType::int8, WireType::int4);
    const std::size_t gathers_in_int8 = sent(options);
    options.wire.gather = {};
    const std::size_t gathers_plain = sent(options);
    // Gathers of parameters have a part of the bytes; all others are in int4.
    const std::size_t gathers = (gathers_plain - gathers_in_int8) / (512 - 260) * 512;
    CHECK(gathers_plain - gathers == (plain - gathers) / 512 * 132);
    CHECK((gathers == 0) == (std::string_view(sharding) == "ddp"));
  }
}

TEST_CASE("types of elements in messages that do not fit other options are refused") {
  const auto refused = [](TrainerOptions options, const char* message) {
    const models::Architecture gpt = models::make_gpt(in_precision(small_gpt(), options.precision));
    CHECK_THROWS_WITH_AS((void)plan_of(gpt, options, 0), doctest::Contains(message), ranvier::Error);
  };
  const models::Precision single;
  refused(wire_run("zero3", all_links(WireType::int4, WireType::same)),
          "`gather_dtype` int4 is for gradients only; use `gather_dtype` int8");
  refused(wire_run("zero1", all_links(WireType::int8, WireType::same), single),
          "`gather_dtype` int8 with `shard` zero1 needs separate master weights; use `precision` bf16 or fp16");
  refused(wire_run("GGN", all_links(WireType::int8, WireType::same), single),
          "`gather_dtype` int8 with `shard` GGN needs separate master weights");
  TrainerOptions same_master = wire_run("zero1", all_links(WireType::int8, WireType::same));
  same_master.tiers.master = DType::bf16;
  refused(same_master, "use `master_dtype` fp32, or `parameter_tier` host or nvme");
  TrainerOptions messages = wire_run("zero3", all_links(WireType::int8, WireType::same));
  messages.grid = {2, 2};
  messages.policy = Policy::message_driven;
  refused(messages, "`gather_dtype` int8 does not work with `policy` message-driven and sharded parameters");
  TrainerOptions averages = wire_run("ddp", all_links(WireType::same, WireType::int8), single);
  CHECK_THROWS_WITH_AS((void)plan_rank(models::make_resnet(small_resnet), {}, averages, 0),
                       doctest::Contains("`reduce_dtype` int8 would round the running averages of"),
                       ranvier::Error);
  TrainerOptions secondary = wire_run("zero++", {.gather = {.intra_node = WireType::int8}});
  refused(secondary, "`gather_dtype` int8 inside nodes with `shard` zero++ needs the same type between nodes");
}
