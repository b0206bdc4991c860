// A bucket is one operation of each kind, regardless of the number of ranks in the column.
#include "actors/base/rank_context.hpp"
#include "actors/gradients/gradient_squared_norm.hpp"
#include "actors/optimizer/bucket_step.hpp"
#include "actors/predict/operation_count.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/families/gpt.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::OperationCount;

namespace {

/// A rank of a column of `rows`, whose units have buckets that are slices of every finest piece.
actors::RankPlan plan_of(const models::Architecture& architecture, int rows, const char* sharding,
                         const collectives::WireTypes& wire = {}) {
  auto options = tests::small_run({1, rows}, sharding);
  options.batch_size = rows;
  options.microbatch_size = 1;
  options.group_size = rows == 1 ? 1 : 4;
  options.tiers.bucket_elements = std::size_t{1} << 17;
  options.algorithms = {"ring", "ring", "ring"};
  options.wire = wire;
  return actors::plan_rank(architecture, tests::RandomTokens(8, 37).sample_bytes(), options, rows == 1 ? 0 : 1);
}

models::Architecture architecture() {
  return models::make_gpt({.layers = 1, .hidden = 384, .heads = 2, .vocab_size = 129, .sequence_length = 8});
}

struct Launches {
  std::size_t squares = 0, steps = 0;
};

/// Number of launches for all buckets once, counted on the stream.
Launches launches(actors::RankPlan& plan) {
  runtime::Simulation simulation(1, {});
  const auto device = runtime::make_inline_device();
  actors::RankResources rank(simulation.loop(0), simulation.transport(0), *device, plan.memory, plan.tiers);
  plan.states->bind(rank.context().arena);
  const runtime::Stream& stream = rank.context().compute.stream();
  actors::GradientSquaredNorm squares(rank.context(), plan, plan.gradients.batch.squares);
  const actors::StateRecords states(rank.context(), plan, plan.optimizer.states);
  actors::BucketStep step(rank.context(), plan, plan.optimizer.step, states);
  Launches made;
  for (const auto& bundle : plan.chunks.bundles) {
    for (const auto& bucket : bundle.buckets) {
      const actors::UnitState& unit = plan.states->all()[bucket.unit];
      const std::size_t before = stream.done();
      squares.take(bucket, unit.gradients.front().at(unit.cut.spread(unit.reduced, bucket.index).begin), false);
      const std::size_t between = stream.done();
      step.step({.bucket = bucket}, {.learning_rate = 1e-3}, [] {});
      made.squares += between - before;
      made.steps += stream.done() - between;
    }
  }
  return made;
}

std::size_t buckets(const actors::RankPlan& plan) {
  std::size_t count = 0;
  for (const auto& bundle : plan.chunks.bundles) count += bundle.buckets.size();
  return count;
}

}  // namespace

TEST_CASE("a bucket is one launch of AdamW and one of the squared norm, as counted, at 8, 64 and 256 rows") {
  const models::Architecture gpt = architecture();
  // With the stream's other work for a step: spans, and the handler at its end.
  actors::RankPlan alone = plan_of(gpt, 1, "ddp");
  const std::size_t work_of_step = launches(alone).steps / buckets(alone);
  for (const char* sharding : {"ddp", "mics", "zero1"}) {
    for (const int rows : {8, 64, 256}) {
      INFO("sharding ", std::string(sharding), ", rows ", rows);
      actors::RankPlan plan = plan_of(gpt, rows, sharding);
      const OperationCount count = actors::count_operations(plan);
      const Launches made = launches(plan);
      CHECK(count.steps == buckets(plan));
      CHECK(count.squares == buckets(plan) + plan.states->all().size());
      // There is no launch for a piece that is all padding.
      CHECK(made.steps <= work_of_step * buckets(plan));
      CHECK(made.squares <= count.squares);
      if (std::string(sharding) != "ddp") continue;
      CHECK(made.steps == work_of_step * buckets(plan));
      CHECK(made.squares == count.squares);
      CHECK(buckets(plan) > plan.states->all().size() + 2);
    }
  }
}

TEST_CASE("each step of a ring is one message per part of a collective, regardless of its runs") {
  const models::Architecture gpt = architecture();
  for (const int rows : {8, 64}) {
    CAPTURE(rows);
    const actors::RankPlan plan = plan_of(gpt, rows, "ddp");
    const OperationCount count = actors::count_operations(plan);
    CHECK(count.collectives == plan.chunks.chunks.size());
    CHECK(count.messages == 2 * static_cast<std::size_t>(rows - 1) * buckets(plan));
    CHECK(count.additions == static_cast<std::size_t>(rows - 1) * buckets(plan));
    CHECK(count.copies == 0);  // a piece's slice is one run
  }
}

TEST_CASE("gradients in blocks are encoded, sent directly to their owners, added, and gathered") {
  using collectives::WireType;
  const models::Architecture gpt = architecture();
  constexpr std::size_t group = 4;
  for (const int rows : {8, 64}) {
    CAPTURE(rows);
    const actors::RankPlan plan = plan_of(gpt, rows, "ddp", {.reduce = {WireType::int8, WireType::int8}});
    const OperationCount count = actors::count_operations(plan);
    const std::size_t groups = static_cast<std::size_t>(rows) / group;
    // A reduce-scatter in the group, an all-reduce across groups, and a gather in the group.
    CHECK(count.collectives == 4 * plan.chunks.chunks.size());
    CHECK(count.messages == 2 * (group - 1 + groups - 1) * buckets(plan));
    CHECK(count.additions == 2 * buckets(plan));
    CHECK(count.copies == (1 + 3 + 2) * buckets(plan));
  }
}

TEST_CASE("a rank sends one message per step among replicas, with all runs of the group's piece") {
  const models::Architecture gpt = architecture();
  for (const int rows : {8, 64}) {
    CAPTURE(rows);
    const actors::RankPlan plan = plan_of(gpt, rows, "mics");  // an all-reduce among replicas
    const OperationCount count = actors::count_operations(plan);
    const std::size_t replicas = static_cast<std::size_t>(rows / 4);
    CHECK(count.messages == 2 * (replicas - 1) * buckets(plan));
  }
}
