// Complete jobs whose collectives run on NCCL: over host memory, and as strict about orders as on GPUs.
#include "actors/watch/watchdog.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/collectives/nccl_world.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

#include <fmt/ranges.h>

using namespace ranvier;
using namespace ranvier::tests;

namespace {

/// NCCL for every rank of a job; the columns are closed before the job's memory is freed.
struct NcclOfJob {
  test::NcclWorld world;
  std::vector<std::unique_ptr<runtime::Device>> gpus;
  std::vector<std::unique_ptr<collectives::NcclLibrary>> libraries;
  std::vector<std::unique_ptr<collectives::NcclColumn>> columns;

  explicit NcclOfJob(std::uint64_t seed) : world(seed) {}

  collectives::NcclColumn* attach(runtime::Simulation& simulation, int rank, actors::RankPlan& plan,
                                  collectives::NcclMode way) {
    gpus.push_back(world.make_gpu());
    libraries.push_back(world.make_library());
    columns.push_back(std::make_unique<collectives::NcclColumn>(
        simulation.loop(rank), simulation.transport(rank), *gpus.back(), *libraries.back(),
        collectives::NcclColumn::Options{.ranks = plan.column->ranks, .ways = {way, way, way}}));
    plan.column->source = columns.back().get();
    return columns.back().get();
  }
  Attach by(collectives::NcclMode way) {
    return [this, way](runtime::Simulation& simulation, int rank, actors::RankPlan& plan) {
      return attach(simulation, rank, plan, way);
    };
  }
};

JobResult run_by_nccl(const actors::TrainerOptions& options, collectives::NcclMode way, std::uint64_t seed,
                      int* groups = nullptr, const models::Tuning& tuning = {}) {
  NcclOfJob nccl(seed);
  const auto gpt = small_gpt();
  const auto result =
      run_simulated(models::make_gpt(gpt, tuning), RandomTokens(gpt.sequence_length, gpt.vocab_size), options, seed,
                    {}, Devices::inline_, nccl.by(way));
  if (groups != nullptr) *groups = nccl.world.groups;
  return result;
}

actors::TrainerOptions sharded(const char* sharding, runtime::GridShape grid) {
  auto options = small_run(grid);
  options.group_size = 2;
  options.node_of = std::vector<int>(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) options.node_of[static_cast<std::size_t>(rank)] = rank / 2;
  options.sharding = collectives::parse_sharding(sharding);
  options.tiers.bucket_elements = 500;
  options.algorithms = {"ring", "ring", "ring"};
  return options;
}

}  // namespace

TEST_CASE(
    "training by NCCL's sends and receives gives the bits of the plans, for every sharding, with a pipeline, and "
    "with another sharding of a frozen base") {
  const auto check = [](const actors::TrainerOptions& options, const models::Tuning& tuning) {
    int groups = 0;
    const auto by_nccl = run_by_nccl(options, collectives::NcclMode::plan, 3, &groups, tuning);
    CHECK(groups > 0);
    check_same_bits(by_nccl, run_simulated(models::make_gpt(small_gpt(), tuning), RandomTokens(8, 37), options, 4));
  };
  tests::Share share(2, 8);
  for (const char* sharding : {"ddp", "zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "zero++"}) {
    for (const runtime::GridShape grid : {runtime::GridShape{1, 4}, runtime::GridShape{2, 4}}) {
      if (!share.takes()) continue;
      INFO("sharding ", sharding, ", g_inter ", grid.g_inter);
      check(sharded(sharding, grid), {});
    }
  }
  for (const auto& [frozen, trained] :
       {std::pair{"zero3", "ddp"}, {"zero3", "mics"}, {"mics", "zero3"}, {"zero++", "zero2"}}) {
    INFO("frozen ", std::string(frozen), ", trained ", std::string(trained));
    auto options = sharded(frozen, {1, 4});
    options.trained_sharding = collectives::parse_sharding(trained);
    check(options, models::make_tuning("^h.[13]", ""));
  }
}

TEST_CASE("NCCL moves messages in blocks, with the bits of the plans for any of its algorithms") {
  using collectives::WireType;
  for (const char* sharding : {"ddp", "zero2", "zero3", "mics", "zero++"}) {
    auto options = sharded(sharding, {1, 4});
    options.wire.reduce = {WireType::int8, WireType::int4};
    const bool gathers = options.sharding.parameters == options.sharding.optimizer;
    if (gathers) options.wire.gather = {WireType::int8, WireType::int8};
    const auto by_plans = run_simulated(small_gpt(), options, 4);
    for (const auto way :
         {collectives::NcclMode::own, collectives::NcclMode::hierarchical, collectives::NcclMode::plan}) {
      INFO("sharding ", std::string(sharding), ", mode ", static_cast<int>(way));
      int groups = 0;
      check_same_bits(run_by_nccl(options, way, 3, &groups), by_plans);
      CHECK(groups > 0);
    }
  }
}

TEST_CASE("after NCCL is connected a run allocates no pinned memory, and no memory inaccessible to the host") {
  using actors::Policy;
  using actors::TierKind;
  using actors::UpdateRule;
  struct Case {
    const char* sharding;
    runtime::GridShape grid;
    Policy policy = Policy::one_f_one_b;
    TierKind tier = TierKind::device;
    models::Precision precision = {};
    const char* trained = nullptr;  // sharding of the trained part, if different
    UpdateRule rule = UpdateRule::adamw;
    bool lora = false;  // many small units in a bundle
    collectives::WireType wire = collectives::WireType::same;
  };
  const models::Precision half = {.compute = runtime::DType::bf16};
  for (const Case& each :
       {Case{"zero2", {1, 4}}, Case{"zero3", {1, 4}, Policy::one_f_one_b, TierKind::host},
        Case{"ddp", {3, 2}, Policy::gpipe}, Case{"zero1", {2, 2}, Policy::message_driven, TierKind::host, half},
        Case{"zero3", {2, 2}, Policy::message_driven},
        Case{"zero3", {2, 4}, Policy::message_driven, TierKind::host, half},
        Case{"zero++", {3, 4}, Policy::message_driven},
        Case{"zero3", {2, 4}, Policy::message_driven, TierKind::device, half, "mics"},
        Case{"zero++", {2, 4}, Policy::message_driven, TierKind::host, half, "zero3"},
        Case{.sharding = "zero1", .grid = {1, 8}, .rule = UpdateRule::muon},
        Case{.sharding = "zero1", .grid = {1, 8}, .rule = UpdateRule::muon, .lora = true},
        Case{.sharding = "ddp", .grid = {2, 4}, .tier = TierKind::host, .rule = UpdateRule::muon},
        Case{.sharding = "zero1",
             .grid = {2, 4},
             .tier = TierKind::host,
             .precision = half,
             .wire = collectives::WireType::int8},
        Case{.sharding = "zero++", .grid = {1, 4}, .precision = half, .wire = collectives::WireType::int8}}) {
    INFO("sharding ", std::string(each.sharding), ", g_inter ", each.grid.g_inter, ", g_data ", each.grid.g_data);
    auto options = sharded(each.sharding, each.grid);
    options.policy = each.policy;
    options.batch_size = 5 * each.grid.g_data;  // the last microbatch is shorter
    options.eval_every = 1;
    options.eval_samples = options.batch_size;
    options.sample = {.every = 1, .prompt = {3, 1}, .tokens = 4};
    options.precision = each.precision;
    options.tiers.parameters = options.tiers.gradients = options.tiers.optimizer = each.tier;
    options.tiers.rule = each.rule;
    options.wire = {.gather = {each.wire, each.wire}, .reduce = {each.wire, each.wire}};
    auto gpt = small_gpt(each.lora ? 12 : 4);
    gpt.precision = each.precision;
    if (each.trained != nullptr) options.trained_sharding = collectives::parse_sharding(each.trained);
    const auto architecture =
        models::make_gpt(gpt, each.lora ? adapters({"attn.c_attn"})
                                        : models::make_tuning(each.trained != nullptr ? "^h.[13]" : "", ""));
    const RandomTokens tokens(8, 37);
    const auto near = run_simulated(architecture, tokens, options, 1);
    options.gpu = {{.scratch_bytes = 0, .staged = true}};
    NcclOfJob nccl(1);
    const auto far =
        run_simulated(architecture, tokens, options, 2, {}, Devices::far, nccl.by(collectives::NcclMode::plan));
    check_same_bits(near, far);
  }
}

TEST_CASE("training by NCCL's own collectives gives the same weights within rounding") {
  tests::Share share(2, 8);
  for (const char* sharding : {"ddp", "zero1", "zero3", "mics", "paro-iig"}) {
    for (const auto way : {collectives::NcclMode::own, collectives::NcclMode::hierarchical}) {
      if (!share.takes()) continue;
      CAPTURE(sharding);
      const auto options = sharded(sharding, {1, 4});
      const auto gpt = small_gpt();
      const auto by_nccl = run_by_nccl(options, way, 5);
      const auto by_plan = run_simulated(gpt, options, 5);
      REQUIRE(by_nccl.weights.size() == by_plan.weights.size());
      double worst = 0;
      for (const auto& [name, weights] : by_plan.weights) {
        const auto& others = by_nccl.weights.at(name);
        REQUIRE(others.size() == weights.size());
        for (std::size_t i = 0; i < weights.size(); ++i)
          worst = std::max(worst, std::abs(double(weights[i]) - others[i]));
      }
      CHECK(worst < 1e-4);
      REQUIRE(by_nccl.steps.size() == by_plan.steps.size());
      CHECK(by_nccl.steps.back().loss == doctest::Approx(by_plan.steps.back().loss).epsilon(1e-5));
    }
  }
}

TEST_CASE("tied replicas stay equal to the bit even if NCCL rounds differently in each column") {
  tests::Share share(3, 8);
  for (const std::string sharding : {"ddp", "zero1", "zero3", "mics", "paro-iig", "zero++"}) {
    for (const auto way : {collectives::NcclMode::own, collectives::NcclMode::hierarchical}) {
      for (const auto tier : {actors::TierKind::device, actors::TierKind::host}) {
        if (!share.takes()) continue;
        CAPTURE(sharding);
        auto options = sharded(sharding.c_str(), {2, 4});
        options.tiers.gradients = tier;
        options.policy = actors::Policy::one_f_one_b;
        options.gpu = {{.scratch_bytes = 0, .staged = true}};
        NcclOfJob nccl(5);
        nccl.world.sums_alike = false;
        // Throws if replicas of a unit differ.
        const auto result = run_simulated(models::make_gpt(small_gpt()), RandomTokens(8, 37), options, 5, {},
                                          Devices::far, nccl.by(way));
        options.gpu.reset();
        const auto by_plan = run_simulated(small_gpt(), options, 5);
        CHECK(result.steps.back().loss == doctest::Approx(by_plan.steps.back().loss).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("a row that stops taking part in NCCL's operations is named, with the operations that wait for it") {
  constexpr auto timeout = std::chrono::milliseconds(100);
  for (const int silent : {0, 1, 3}) {
    if (test::sanitized && silent != 1) continue;
    CAPTURE(silent);
    auto options = sharded("zero2", {1, 4});
    options.fault = actors::TrainerOptions::Fault{
        .rank = silent, .step = 2, .kind = actors::TrainerOptions::Fault::Kind::hangs};
    const auto architecture = models::make_gpt(small_gpt());
    const RandomTokens tokens(8, 37);
    runtime::Simulation simulation(4, {.seed = 1});
    NcclOfJob nccl(1);
    std::vector<std::unique_ptr<runtime::Device>> devices;
    std::vector<std::unique_ptr<actors::Rank>> trainers;
    std::vector<std::unique_ptr<actors::Watchdog>> watchdogs;
    for (int r = 0; r < 4; ++r) {
      devices.push_back(runtime::make_inline_device());
      auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), options, r);
      auto* column = nccl.attach(simulation, r, plan, collectives::NcclMode::own);
      trainers.push_back(std::make_unique<actors::Rank>(simulation.loop(r), simulation.transport(r),
                                                        *devices.back(), actors::Rank::Samples{tokens},
                                                        std::move(plan)));
      auto* trainer = trainers.back().get();
      load_initial_weights(*trainer, options.seed);
      std::vector<int> peers;
      for (int other = 0; other < 4; ++other) {
        if (other != r) peers.push_back(other);
      }
      watchdogs.push_back(std::make_unique<actors::Watchdog>(
          simulation.loop(r), simulation.transport(r), trainer->context().trace,
          actors::Watchdog::Options{.timeout = timeout,
                                    .peers = std::move(peers),
                                    .describe = [](int rank) { return fmt::format("rank {}", rank); },
                                    .waits = [trainer] { return trainer->waits(); },
                                    .details = [trainer](std::string_view part) { return trainer->details(part); },
                                    .waited_for = [column] { return column->waited_for(); }}));
      column->connect([trainer] {
        trainer->start({.step = [](const actors::StepResult&) {}, .evaluation = nullptr, .done = [] {}});
      });
    }
    std::string message;
    try {
      simulation.run();
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find(fmt::format("rank {} is alive but idle: rank ", silent)) == 0);
    check_has(message, {"a collective chunk", ", by NCCL with ranks 0, 2, 1, 3 on inline"});
    for (const auto& column : nccl.columns) column->close();  // before the trainers' memory is freed
    // If the first rank is silent, the others have not started.
    CHECK((nccl.world.aborted > 0) == (silent != 0));
    CHECK(nccl.world.aborted + nccl.world.closed == 4);
  }
}
