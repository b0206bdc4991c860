// Memory and messages of complete jobs, compared with predictions (actors/states/sharded_unit.hpp,
// actors/predict/volume.hpp).
#include "actors/predict/volume.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/collectives/all_shardings.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::tests;
using collectives::parse_sharding;
using collectives::Scope;
using collectives::Sharding;
using runtime::Channel;
using runtime::DType;

namespace {

struct SentBytes {
  std::uint64_t intra_node = 0, inter_node = 0;
};

/// Bytes that all ranks together send in all steps.
SentBytes sent_by_run(const models::Architecture& architecture, const TrainerOptions& options) {
  const RandomTokens tokens(architecture.positions, 37);
  SentBytes sent;
  runtime::Simulation simulation(options.grid.ranks(), {.seed = 5});
  WatchedRanks ranks(
      simulation, architecture, tokens, options, [&](int rank, int peer, runtime::Tag tag, std::size_t bytes) {
        if (tag.channel != Channel::collective && tag.channel != Channel::piece && tag.channel != Channel::matrix)
          return;
        const bool same_node = options.node_of.at(std::size_t(rank)) == options.node_of.at(std::size_t(peer));
        (same_node ? sent.intra_node : sent.inter_node) += bytes;
      });
  ranks.load_weights(options.seed);
  ranks.run();
  return sent;
}

/// Predicted bytes of one batch, or only of one gather of each frozen unit with a second copy: from the column, or
/// `inside_groups`.
enum class Counted { as_run, as_papers, from_column, inside_groups };
SentBytes worked_out(const models::Architecture& architecture, const TrainerOptions& options, Counted counted) {
  const ColumnShape shape = column_shape(options);
  const int rows = options.grid.g_data;
  const int microbatches = options.batch_size / rows / options.microbatch_size;
  SentBytes bytes;
  for (int stage = 0; stage < options.grid.g_inter; ++stage) {
    const RankPlan plan = plan_rank(architecture, {}, options, stage * rows);
    const auto units = sharded_units(architecture, plan.layers, rows, options.tiers, options.wire);
    auto moves = counted != Counted::as_run || plan.parameters.classes.places.empty()
                     ? moves_of(units, std::uint64_t(microbatches))
                     : replayed_moves(plan, stage, units, plan.parameters.classes);
    UnitShardings shardings = options.shardings();
    if (counted == Counted::from_column || counted == Counted::inside_groups) {
      const bool second = shardings.frozen.secondary_parameters;
      std::erase_if(moves, [second](const UnitTraffic& unit) { return unit.trained || !second; });
      for (UnitTraffic& unit : moves) {
        unit.forward_gathers = 1;
        unit.backward_gathers = 0;
      }
      shardings.frozen.secondary_parameters = counted == Counted::inside_groups;
    }
    const auto first = options.node_of.begin() + stage * rows;
    VolumeCounter counter({.node_of = {first, first + rows},
                           .node_of_row = shape.node_of_row,
                           .group_size = shape.group_size,
                           .algorithms = plan.column->choices,
                           .precision = options.precision,
                           .tiers = options.tiers,
                           .wire = options.wire,
                           .pulls = plan.parameters.options.pulls});
    const auto total = counter.count(moves, shardings).total();
    bytes.intra_node += total.intra_node.bytes;
    bytes.inter_node += total.inter_node.bytes;
  }
  return bytes;
}

/// Predicted bytes of a run: the first gather of a frozen unit with a second copy is from the column.
SentBytes worked_out_run(const models::Architecture& architecture, const TrainerOptions& options, Counted counted) {
  const SentBytes batch = worked_out(architecture, options, counted),
                  first = worked_out(architecture, options, Counted::from_column),
                  instead_of = worked_out(architecture, options, Counted::inside_groups);
  const auto steps = std::uint64_t(options.steps);
  return {steps * batch.intra_node + first.intra_node - instead_of.intra_node,
          steps * batch.inter_node + first.inter_node - instead_of.inter_node};
}

/// Checks that a job sends exactly the predicted bytes.
void check_sent(const models::Architecture& architecture, const TrainerOptions& options, Counted counted) {
  const SentBytes sent = sent_by_run(architecture, options),
                  expected = worked_out_run(architecture, options, counted);
  CHECK(sent.intra_node == expected.intra_node);
  CHECK(sent.inter_node == expected.inter_node);
}

/// Checks that a job sends no more than the papers count; returns what it sends.
SentBytes check_sent_at_most(const models::Architecture& architecture, const TrainerOptions& options) {
  const SentBytes sent = sent_by_run(architecture, options),
                  most = worked_out_run(architecture, options, Counted::as_papers);
  CHECK(sent.intra_node <= most.intra_node);
  CHECK(sent.inter_node <= most.inter_node);
  return sent;
}

models::Architecture gpt_of(int layers, const models::Precision& precision, const models::Tuning& tuning = {}) {
  models::GptOptions gpt = small_gpt(layers);
  gpt.precision = precision;
  return models::make_gpt(gpt, tuning);
}

TrainerOptions run_of(int g_inter, int g_data, int node_size) {
  TrainerOptions options = small_run({g_inter, g_data});
  options.batch_size = 4 * g_data;
  options.microbatch_size = 1;
  options.policy = Policy::one_f_one_b;
  for (int rank = 0; rank < g_inter * g_data; ++rank) options.node_of.push_back(rank / node_size);
  return options;
}

}  // namespace

TEST_CASE("a job sends exactly the predicted bytes, under every sharding") {
  tests::Share share(3, 16);
  struct Shape {
    int g_inter, g_data, node_size;
  };
  for (const auto& [g_inter, g_data, node_size] : {Shape{1, 4, 2}, {1, 6, 3}, {2, 2, 2}, {2, 4, 4}, {1, 3, 2}}) {
    auto options = run_of(g_inter, g_data, node_size);
    for (const Sharding& sharding : all_shardings()) {
      options.sharding = sharding;
      for (const int prefetch : {0, 2}) {
        if ((prefetch == 0 && sharding.parameters == Scope::none) || !share.takes()) continue;
        options.prefetch = prefetch;
        options.tiers.rule = (g_data + prefetch) % 4 == 0 ? UpdateRule::muon : UpdateRule::adamw;
        options.reuse = g_data % 3 != 0 || prefetch > 0;
        options.precision = prefetch == 0 ? models::Precision{DType::bf16, DType::f32} : models::Precision{};
        const auto gpt = gpt_of(6, options.precision);
        INFO("g_inter ", g_inter, ", g_data ", g_data, ", sharding ", to_string(sharding), ", prefetch ", prefetch);
        check_sent(gpt, options, Counted::as_run);
      }
    }
  }
}

TEST_CASE("a job whose messages are in blocks sends exactly the predicted bytes, under every sharding") {
  using enum collectives::WireType;
  tests::Share share(12, 60);
  constexpr collectives::WireTypes types[] = {
      {.gather = {int8, int8}, .reduce = {int8, int4}}, {.reduce = {int4, int4}}, {.gather = {same, int8}},
      {.gather = {same, int8}, .reduce = {same, int8}}, {.reduce = {int8, same}},
  };
  const models::Precision precision{DType::bf16, DType::f32};
  const auto gpt = gpt_of(5, precision);
  for (const auto& [g_inter, g_data, node_size] :
       {std::array{1, 4, 2}, {1, 6, 3}, {2, 4, 2}, {1, 3, 2}, {1, 4, 4}}) {
    for (const Sharding& sharding : all_shardings()) {
      for (const auto& wire : types) {
        if (!share.takes()) continue;
        INFO("g_inter ", g_inter, ", g_data ", g_data, ", node_size ", node_size, ", sharding ",
             to_string(sharding));
        CAPTURE_ALL(to_string(wire.gather.inter_node), to_string(wire.reduce.intra_node),
                    to_string(wire.reduce.inter_node));
        auto options = run_of(g_inter, g_data, node_size);
        options.precision = precision;
        options.sharding = sharding;
        options.wire = wire;
        check_sent(gpt, options, Counted::as_run);
      }
    }
  }
}

TEST_CASE("a job sends exactly the predicted bytes if frozen and trained units have different shardings") {
  tests::Share share(5, 25);
  for (const auto dtype : {DType::f32, DType::bf16}) {
    const models::Precision precision{dtype, DType::f32};
    const auto gpt = gpt_of(5, precision, models::make_tuning("^h.[24]", ""));
    for (const auto& [g_inter, g_data, node_size] : {std::array{1, 4, 2}, {2, 4, 2}}) {
      for (const char* frozen : {"ddp", "zero3", "mics", "zero++"}) {
        for (const char* trained : {"ddp", "zero1", "zero2", "zero3", "paro-igg", "IGN", "GNN"}) {
          if (!share.takes()) continue;
          INFO("g_inter ", g_inter, ", frozen ", std::string(frozen), ", trained ", std::string(trained));
          auto options = run_of(g_inter, g_data, node_size);
          options.precision = precision;
          options.sharding = parse_sharding(frozen);
          options.trained_sharding = parse_sharding(trained);
          options.tiers.rule = dtype == DType::f32 ? UpdateRule::muon : UpdateRule::adamw;
          options.tiers.secondary = g_inter == 1 ? TierKind::host : TierKind::device;
          check_sent(gpt, options, Counted::as_run);
          options.policy = Policy::message_driven;
          check_sent_at_most(gpt, options);
        }
      }
    }
  }
}

TEST_CASE("a job with chunks or deferred weight gradients in a fixed order sends exactly the predicted bytes") {
  tests::Share share(3, 12);
  struct Case {
    int stages, chunks, recompute;
    Policy policy;
  };
  const Case cases[] = {{2, 2, 0, Policy::one_f_one_b}, {2, 4, 1, Policy::one_f_one_b}, {2, 2, 2, Policy::gpipe},
                        {3, 1, 0, Policy::zb_h1},       {3, 1, 1, Policy::zb_h1},       {3, 1, 2, Policy::zb_h1}};
  const auto gpt = gpt_of(6, {});
  for (const char* name : {"zero3", "mics", "zero++", "GIN"}) {
    for (const auto& [stages, chunks, recompute, policy] : cases) {
      for (const int limit : {1, 2, 3}) {
        if (policy == Policy::zb_h1 ? !share.takes() : limit > 1) continue;
        INFO("name ", name, ", chunks ", chunks, ", recompute ", recompute, ", limit ", limit);
        auto options = run_of(stages, 2, 2);
        options.chunks_per_rank = chunks;
        options.policy = policy;
        options.sharding = parse_sharding(name);
        options.recompute = recompute;
        options.deferred_limit = limit;
        check_sent(gpt, options, Counted::as_run);
      }
    }
  }
}

TEST_CASE("a message-driven pipeline sends no more than the papers count") {
  const auto gpt = gpt_of(6, {});
  auto options = run_of(2, 4, 2);
  options.policy = Policy::message_driven;
  for (const char* name : {"zero1", "zero3", "mics", "paro-igg", "zero++"}) {
    CAPTURE(name);
    options.sharding = parse_sharding(name);
    const SentBytes sent = check_sent_at_most(gpt, options);
    CHECK(sent.intra_node + sent.inter_node > 0);
  }
}

TEST_CASE("a job without buffer reuse sends the volume that the papers count") {
  tests::Share share(1, 3);
  auto options = run_of(1, 4, 2);
  options.reuse = false;
  const auto gpt = gpt_of(5, {});
  for (const Sharding& sharding : all_shardings()) {
    if (!share.takes()) continue;
    CAPTURE(to_string(sharding));
    options.sharding = sharding;
    check_sent(gpt, options, Counted::as_papers);
  }
}

TEST_CASE("with a second copy, backward passes send nothing between nodes: half of the bytes for parameters") {
  const auto gpt = gpt_of(5, {});
  auto options = run_of(1, 4, 2);
  options.reuse = false;
  options.algorithms = {"ring", "ring", "ring"};
  for (const Policy policy : {Policy::one_f_one_b, Policy::message_driven}) {
    options.policy = policy;
    // Reductions and refreshed parameters are the same for both shardings.
    options.sharding = parse_sharding("zero3");
    const auto all = sent_by_run(gpt, options).inter_node;
    const RankPlan plan = plan_rank(gpt, {}, options, 0);
    const auto moves = moves_of(sharded_units(gpt, plan.layers, 4), 4);
    VolumeCounter counter({.node_of = options.node_of,
                           .group_size = 2,
                           .algorithms = plan.column->choices,
                           .precision = options.precision,
                           .pulls = plan.parameters.options.pulls});
    const auto volume = counter.count(moves, options.shardings());
    const std::uint64_t gathers = std::uint64_t(options.steps) * volume.forward.inter_node.bytes;
    REQUIRE(gathers > 0);
    options.sharding = parse_sharding("zero++");
    for (const TierKind tier : {TierKind::device, TierKind::host}) {
      options.tiers.secondary = tier;
      CHECK(all - sent_by_run(gpt, options).inter_node == gathers);
    }
    options.tiers.secondary = TierKind::device;
  }
}

TEST_CASE("frozen units with a second copy cross nodes once per run, so later steps send adapters only") {
  models::GptOptions model = small_gpt(5);
  model.hidden = 32;
  const auto gpt = models::make_gpt(model, adapters({"c_attn"}));
  auto options = run_of(2, 4, 2);
  options.sharding = parse_sharding("zero++");
  options.trained_sharding = parse_sharding("zero1");
  for (const Policy policy : {Policy::one_f_one_b, Policy::message_driven}) {
    options.policy = policy;
    std::vector<SentBytes> runs;
    for (const int steps : {1, 2, 3}) {
      for (const TierKind tier : {TierKind::device, TierKind::host}) {
        options.steps = options.learning_rate.steps = steps;
        options.tiers.secondary = tier;
        runs.push_back(sent_by_run(gpt, options));
      }
      CHECK(runs.back().inter_node == runs[runs.size() - 2].inter_node);
    }
    const std::uint64_t of_trained = worked_out(gpt, options, Counted::as_papers).inter_node;
    CHECK(runs[2].inter_node - runs[0].inter_node == of_trained);
    CHECK(runs[4].inter_node - runs[2].inter_node == of_trained);
    CHECK(runs[0].inter_node == of_trained + worked_out(gpt, options, Counted::from_column).inter_node);
    options.sharding = parse_sharding("zero3");
    const std::uint64_t of_zero3 = worked_out(gpt, options, Counted::as_papers).inter_node;
    CHECK(of_trained > 0);
    CHECK(of_trained * 100 < of_zero3);
    options.sharding = parse_sharding("zero++");
  }
}
