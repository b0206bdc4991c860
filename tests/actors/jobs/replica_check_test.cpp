#include "actors/replicas/replica_check.hpp"

#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::BadStepOptions;
using actors::ReplicaMismatch;
using actors::ReplicaSet;
using actors::StateKind;
using actors::TierKind;
using runtime::DType;
using Fault = actors::TrainerOptions::Fault;

namespace {

/// Two units, the first of which is on both stages of two rows, or of three rows on one stage.
std::vector<ReplicaSet> sets_of(const char* sharding, runtime::GridShape grid, bool separate_master) {
  const std::vector<models::UnitSpec> units = {
      {.name = "tied", .parameters = {{.name = "w", .shape = {96}}}},
      {.name = "own", .parameters = {{.name = "w", .shape = {96}}}},
  };
  const std::vector<int> nodes(static_cast<std::size_t>(grid.g_data), 0);
  const collectives::ShardLayout layout(nodes, 1, 0);
  const std::vector<std::vector<int>> stages =
      grid.g_inter == 2 ? std::vector<std::vector<int>>{{0, 1}, {1}} : std::vector<std::vector<int>>{{0}, {0}};
  return actors::replica_sets(
      units, stages,
      {.grid = grid,
       .layout = &layout,
       .sharding = collectives::parse_sharding(sharding),
       .precision = {separate_master ? runtime::DType::bf16 : runtime::DType::f32, runtime::DType::f32}});
}

/// Result of a job's check after a bit of that array flips on that rank.
ReplicaMismatch found_damage(actors::TrainerOptions options, int rank, StateKind array) {
  options.bad_steps.action = BadStepOptions::Action::rollback;
  options.fault = Fault{.rank = rank, .step = 2, .kind = Fault::Kind::damage, .array = array};
  const auto result = run_simulated(in_precision(small_gpt(2), options.precision), options, 1);
  REQUIRE(result.rollback);
  CHECK(result.rollback->newest_step == 1);
  CHECK(result.rollback->left_out.empty());
  CHECK(result.steps.size() == 2);
  REQUIRE(result.checks.size() == 2);
  CHECK(result.checks.front().damage.empty());
  REQUIRE(result.checks.back().damage.size() == 1);
  return result.checks.back().damage.front();
}

actors::TrainerOptions checked_run(runtime::GridShape grid, const char* sharding) {
  auto options = small_run(grid, sharding);
  options.batch_size = 12;
  options.steps = 3;
  options.check_every = 1;
  return options;
}

}  // namespace

TEST_CASE("rows that hold the same elements are a replica set, and so are the stages of a tied unit") {
  const auto whole = sets_of("ddp", {1, 3}, false);
  REQUIRE(whole.size() == 6);
  for (const ReplicaSet& set : whole) {
    CHECK(set.ranks == std::vector<int>{0, 1, 2});
    CHECK(set.range == collectives::Range{0, 96});
  }
  CHECK(sets_of("zero3", {1, 3}, false).empty());
  const auto layers = sets_of("zero1", {1, 3}, true);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].array == StateKind::parameters);
  CHECK(layers[0].ranks == std::vector<int>{0, 1, 2});
  // If the unit is sharded over both rows, the other stage has the same halves.
  const auto tied = sets_of("zero3", {2, 2}, true);
  REQUIRE(tied.size() == 8);
  for (std::size_t s = 0; s < tied.size(); ++s) {
    CHECK(tied[s].unit == "tied");
    CHECK(tied[s].ranks == (s % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}));
  }
}

TEST_CASE("the replica that differs from the majority is reported, and both of two are") {
  using Hashes = std::vector<std::uint64_t>;
  using Odd = std::vector<std::size_t>;
  CHECK(actors::odd_copies(Hashes{7, 7, 7}) == Odd{});
  CHECK(actors::odd_copies(Hashes{7, 8, 7}) == Odd{1});
  CHECK(actors::odd_copies(Hashes{7, 8}) == Odd{0, 1});
  CHECK(actors::odd_copies(Hashes{7, 8, 8, 7}) == Odd{0, 1, 2, 3});
  CHECK(actors::odd_copies(Hashes{7, 8, 9, 7}) == Odd{1, 2});
}

TEST_CASE("a bit that flips on one of three rows is detected at the next check, and its rank is named") {
  for (const auto& [compute, moments] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::i8}}) {
    for (const StateKind array : {StateKind::parameters, StateKind::weights, StateKind::m, StateKind::v}) {
      if (array == StateKind::weights && compute == DType::f32) continue;  // layers' parameters are the weights
      INFO("compute ", to_string(compute), ", moments ", to_string(moments), ", array ", to_string(array));
      auto options = checked_run({1, 3}, "ddp");
      options.precision = {compute, DType::f32};
      options.tiers.moments = moments;
      const ReplicaMismatch damage = found_damage(options, 1, array);
      CHECK(damage.array == array);
      CHECK(damage.range.begin == 0);
      CHECK(damage.ranks == std::vector<int>{1});
      CHECK(damage.others == std::vector<int>{0, 2});
    }
  }
  const ReplicaMismatch parameters = found_damage(checked_run({1, 3}, "zero1"), 2, StateKind::parameters);
  CHECK(parameters.ranks == std::vector<int>{2});
}

TEST_CASE(
    "both of two replicas are named, on two stages too, and a mismatch ends the job unless it is rolled back") {
  auto options = checked_run({2, 2}, "zero3");
  options.precision = {DType::bf16, DType::f32};
  options.tiers.optimizer = TierKind::host;
  const ReplicaMismatch tied = found_damage(options, 3, StateKind::m);
  CHECK(tied.unit == "wte");
  CHECK(tied.ranks == std::vector<int>{1, 3});
  CHECK(tied.others.empty());
  options.fault = Fault{.rank = 3, .step = 2, .kind = Fault::Kind::damage, .array = StateKind::v};
  options.bad_steps.action = BadStepOptions::Action::skip;
  CHECK_THROWS_WITH_AS(
      run_simulated(in_precision(small_gpt(2), options.precision), options, 1),
      doctest::Contains("step 2: replica mismatch: rank 1 (stage 0, row 1) and rank 3 (stage 1, row 1) differ in "),
      Error);
}

TEST_CASE("second moments that Muon has are compared") {
  auto options = checked_run({1, 3}, "ddp");
  options.tiers.rule = actors::UpdateRule::muon;
  const ReplicaMismatch damage = found_damage(options, 1, StateKind::v);
  CHECK(damage.array == StateKind::v);
  CHECK(damage.ranks == std::vector<int>{1});
  // Norms, biases and the matrices in their blocks.
  const auto plan = plan_of(models::make_gpt(small_gpt(2)), options, 0);
  std::size_t sets = 0;
  for (const ReplicaSet& set : plan.replicas.sets) {
    const auto& units = plan.states->all();
    const auto unit =
        std::ranges::find_if(units, [&](const actors::UnitState& each) { return each.spec->name == set.unit; });
    CHECK(unit->view(set.array).contains(set.range));
    sets += set.array == StateKind::v && !unit->matrices.empty();
  }
  CHECK(sets > 2);
}

TEST_CASE("SGD's momentum is compared, and damage to a moment that SGD lacks is refused") {
  auto options = checked_run({1, 3}, "ddp");
  options.tiers.rule = actors::UpdateRule::sgd;
  CHECK(found_damage(options, 1, StateKind::m).array == StateKind::m);
  options.fault = Fault{.rank = 1, .step = 2, .kind = Fault::Kind::damage, .array = StateKind::v};
  CHECK_THROWS_WITH_AS(run_simulated(small_gpt(2), options, 1),
                       doctest::Contains("RANVIER_FAULT needs replicated states; rank 1 has no replicated v"),
                       Error);
}

TEST_CASE("the final states of a run that stops during an evaluation are checked") {
  auto options = checked_run({1, 2}, "ddp");
  options.check_every = 100;
  options.eval_every = 2;
  options.eval_samples = 2 * options.batch_size;
  const auto result = run_simulated(small_gpt(), options, 1, {{1, 2}});
  REQUIRE(result.steps.size() == 2);
  CHECK(result.evaluations.empty());
  CHECK(result.checks.size() == 1);
}
