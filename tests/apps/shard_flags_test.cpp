// The flags that set the sharding of states, and their consequences for other flags.
#include "actors/rank/rank_plan.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

TEST_CASE("states are replicated on every row unless --shard sets a sharding, by a name or by letters") {
  CHECK(parse_train("--data a").trainer.sharding == collectives::parse_sharding("ddp"));
  CHECK(parse_train("--data a --shard zero3").trainer.sharding == collectives::parse_sharding("GGG"));
  CHECK(parse_train("--data a --shard igg").trainer.sharding == collectives::parse_sharding("paro-igg"));
  CHECK(parse_train("--data a --shard zero++").trainer.sharding.secondary_parameters);
  CHECK(resolved_map(parse_train("--data a --shard INI")).at("shard") == "INI");
  refused_train("--shard zero4", {"--shard is invalid: zero4; use ddp, zero1", "zero++", "such as IGG"});
  refused_train("--shard IXG", "three letters of N (not sharded), I (in a group)");
}

TEST_CASE("a group is the rows on one node, or a divisor of all rows") {
  const auto group_of = [](const Flags& flags, std::vector<int> nodes) {
    actors::TrainerOptions trainer = parse_train(join(flags, "--data a"), 6).trainer;
    trainer.node_of = std::move(nodes);
    return actors::column_shape(trainer).group_size;
  };
  const std::vector<int> six_on_two{0, 0, 0, 1, 1, 1}, uneven{0, 0, 0, 0, 1, 1};
  CHECK(group_of({}, six_on_two) == 3);
  CHECK(group_of({}, uneven) == 2);
  CHECK(group_of("--group-size 6", six_on_two) == 6);
  refused_train("--group-size 3", "--group-size 3 must divide --g-data 4; use one of 1, 2, 4");
  refused_train("--group-size -1", "--group-size is invalid: -1;");
}

TEST_CASE("the trained part has the sharding of --shard, unless --shard-trained sets another one") {
  using collectives::parse_sharding;
  const auto same = parse_train("--data a --shard zero3 --train ln_f");
  CHECK(same.trainer.shardings() == actors::UnitShardings(parse_sharding("zero3")));
  CHECK(resolved_map(same).at("shard-trained") == "same");
  for (const char* part : {"--train ln_f", "--freeze wte", "--model llama --lora-rank 4"}) {
    const auto options = parse_train(join("--data a --shard zero3 --shard-trained ngg", part));
    CHECK(options.trainer.shardings() == actors::UnitShardings(parse_sharding("zero3"), parse_sharding("zero2")));
    CHECK(resolved_map(options).at("shard-trained") == "zero2");
    CHECK(options.notes.empty());
  }
  refused_train("--shard-trained zero1", "--shard-trained zero1 needs a partly frozen model; use --shard zero1");
  refused_train("--parameter-tier-trained host",
                "--parameter-tier-trained host needs a partly frozen model; use --parameter-tier host");
  refused_train("--shard-trained zero9 --train ln_f", "--shard-trained is invalid: zero9; use ddp, zero1");
  CHECK(parse_train("--data a --train ln_f --shard-trained zero1", 1).notes.size() == 1);  // one row
  // Gather buffers and prefetching exist if either part is sharded.
  CHECK(parse_train("--data a --train ln_f --shard-trained zero3 --prefetch 1").notes.empty());
}

TEST_CASE(
    "trained parameters are in the tier of --parameter-tier, unless --parameter-tier-trained sets another one") {
  using enum actors::TierKind;
  const auto tiers = [](const Flags& flags) {
    return parse_train(join(flags, "--data a --train ln_f")).trainer.tiers;
  };
  CHECK(tiers("--parameter-tier host").parameters_of(true) == host);
  CHECK(tiers("--parameter-tier host --parameter-tier-trained same").parameters_of(true) == host);
  const auto apart = tiers("--offload infinity-cpu --parameter-tier-trained device");
  CHECK(apart.parameters_of(false) == host);
  CHECK(apart.parameters_of(true) == device);
  CHECK(apart.parameters_leave());
  CHECK_FALSE(tiers({}).parameters_leave());
  CHECK(resolved_map(parse_train("--data a")).at("parameter-tier-trained") == "same");
  refused_train("--train ln_f --parameter-tier-trained nvme", "--parameter-tier-trained nvme needs directories");
  refused_train("--train ln_f --parameter-tier-trained disk", "nvme, same");
}

TEST_CASE("messages have the type of the data unless a flag sets one for all links, or by link") {
  using enum collectives::WireType;
  const auto links = [](const Flags& flags) {
    return parse_train(join("--data a --shard zero3", flags)).trainer.wire;
  };
  CHECK(links({}) == collectives::WireTypes());
  CHECK(links("--gather-dtype int8") == collectives::WireTypes{.gather = {int8, int8}});
  CHECK(links("--gather-dtype inter=int8") == collectives::WireTypes{.gather = {.inter_node = int8}});
  CHECK(links("--reduce-dtype intra=int8,inter=int4") ==
        collectives::WireTypes{.reduce = {.intra_node = int8, .inter_node = int4}});
  const std::pair<const char*, const char*> written[] = {{"same", "same"},
                                                         {"int4", "int4"},
                                                         {"inter=int4,intra=int4", "int4"},
                                                         {"inter=same", "same"},
                                                         {"inter=int4,intra=same", "inter=int4"},
                                                         {"intra=int8", "intra=int8"},
                                                         {"intra=int8,inter=int4", "inter=int4,intra=int8"}};
  for (const auto& [given, text] : written) {
    CAPTURE(given);
    CHECK(resolved_map(parse_train(fmt::format("--data a --reduce-dtype {}", given))).at("reduce-dtype") == text);
  }
}

TEST_CASE("other types of messages are refused with the valid ones") {
  for (const char* given : {"int4", "fp8", "inter=int4", "inter", "inter=", "=int8", "inter=int8,",
                            "inter=int8,int8", "inter=int8,inter=same", "between=int8"}) {
    CAPTURE(given);
    refused_train(
        {"--gather-dtype", given},
        fmt::format("--gather-dtype is invalid: {}; use same, int8, or types by link such as inter=int8", given));
  }
  refused_train("--reduce-dtype fp8", "--reduce-dtype is invalid: fp8; use same, int8, int4, or types by link");
  refused_train("--zero-quantized-weights", "did you mean --gather-dtype int8?");
  refused_train("--zero_quantized_gradients", "did you mean --reduce-dtype int4?");
}

TEST_CASE("types of messages without messages are noted") {
  const auto notes = [](const Flags& flags, int ranks = 4) {
    return parse_train(join("--data a", flags), ranks).notes;
  };
  CHECK(notes("--gather-dtype int8 --reduce-dtype int8", 1).size() == 2);
  const auto ddp = notes("--gather-dtype int8 --reduce-dtype int8");
  REQUIRE(ddp.size() == 1);
  check_has(ddp.front(), {"--gather-dtype int8 has no effect if every row has all parameters"});
  for (const char* name : {"zero1", "zero3", "mics", "paro-nig", "INN"}) {
    CAPTURE(name);
    CHECK(notes(join("--gather-dtype int8 --shard", name)).empty());
  }
  CHECK(notes("--reduce-dtype inter=int8 --reduce-scatter ring").empty());
  CHECK(notes("--reduce-dtype int8 --shard zero1 --all-gather ring").empty());
  CHECK(notes("--reduce-dtype int8 --reduce-scatter ring --all-reduce ring").size() == 2);
  CHECK(notes("--gather-dtype int8 --train ln_f --shard ddp --shard-trained zero1").empty());
}
