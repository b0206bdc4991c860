// Predictions that simulate one of each set of equivalent rows, compared with predictions of all rows.
#include "actors/predict/predicted_job.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::tests;
using runtime::DType;

namespace {

runtime::MachineProfile machine() {
  runtime::MachineProfile profile;
  profile.name = "test";
  profile.gpu = true;
  profile.cores = 4;
  profile.handler_seconds = 1.3e-6;
  profile.read_bytes_per_second = 3e8;
  profile.write_bytes_per_second = 2e8;
  profile.links = {{.latency_seconds = 3e-6, .bytes_per_second = 9e8, .node_bytes_per_second = 2.1e9},
                   {.latency_seconds = 11e-6, .bytes_per_second = 3e8, .node_bytes_per_second = 4e8}};
  return profile;
}

TrainerOptions job_of(const char* shard, int stages, int rows, int node_size, int group) {
  TrainerOptions options = small_run({.g_inter = stages, .g_data = rows}, shard);
  options.batch_size = rows * 3;
  options.microbatch_size = 1;
  options.policy = Policy::one_f_one_b;
  options.precision = {DType::bf16, DType::f32};
  options.group_size = group;
  for (int rank = 0; rank < stages * rows; ++rank) options.node_of.push_back(rank / node_size);
  options.gpu = TrainerOptions::GpuMemory{.staged = true, .nccl = true};
  return options;
}

Prediction predicted(const TrainerOptions& options, const PredictionOptions& how) {
  models::GptOptions gpt = small_gpt();
  gpt.precision = options.precision;
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  // Some time by FLOPs and some by bytes, so that no two kinds of work end together by chance.
  const CostsOf rates(
      [](const runtime::WorkCost& cost) { return 1001 + std::floor(cost.flops + 0.37 * cost.bytes); });
  return PredictedJob(make_gpt(gpt), tokens, options, machine(), {.costs = &rates}, how).run();
}

/// Compares two predictions, which may differ by the time of an agreement: a few latencies between nodes.
void check_alike(const Prediction& some, const Prediction& all) {
  constexpr double few_latencies = 8 * 11e-6;
  CHECK(std::abs(some.step_seconds - all.step_seconds) < few_latencies);
  CHECK(some.messages == all.messages);
  CHECK(some.device_bytes == all.device_bytes);
  CHECK(some.device_bytes_of_all == all.device_bytes_of_all);
  REQUIRE(some.traffic.size() == all.traffic.size());
  for (std::size_t r = 0; r < all.traffic.size(); ++r)
    for (const auto bytes :
         {&RankTraffic::intra, &RankTraffic::inter, &RankTraffic::nccl_intra, &RankTraffic::nccl_inter})
      CHECK(some.traffic[r].*bytes == doctest::Approx(all.traffic[r].*bytes).epsilon(1e-12));
  // The last row may have less of them than the row that represents it.
  for (const auto bytes :
       {&RankTraffic::to_device, &RankTraffic::to_host, &RankTraffic::read, &RankTraffic::written}) {
    for (std::size_t r = 0; r < all.traffic.size(); ++r) CHECK(some.traffic[r].*bytes >= all.traffic[r].*bytes);
    const auto most = [&](const Prediction& of) { return std::ranges::max(of.traffic, {}, bytes).*bytes; };
    CHECK(most(some) == most(all));
  }
  REQUIRE(some.stages.size() == all.stages.size());
  for (std::size_t s = 0; s < some.stages.size(); ++s) {
    CHECK(some.stages[s].forward_seconds == doctest::Approx(all.stages[s].forward_seconds).epsilon(1e-6));
    CHECK(some.stages[s].backward_seconds == doctest::Approx(all.stages[s].backward_seconds).epsilon(1e-6));
    // The last shard of a unit may be shorter than the one of the row that represents it.
    CHECK(some.stages[s].optimizer_seconds > all.stages[s].optimizer_seconds * (1 - 1e-6));
    CHECK(some.stages[s].optimizer_seconds < all.stages[s].optimizer_seconds * 1.2);
  }
}

}  // namespace

TEST_CASE("one of each set of equivalent rows predicts the result of all rows") {
  struct Case {
    int stages, rows, node_size, group, distinct;
  };
  const Case cases[] = {{1, 16, 4, 4, 4}, {1, 16, 4, 8, 4}, {1, 16, 4, 2, 4}, {1, 8, 1, 2, 1}, {1, 12, 4, 6, 12},
                        {2, 8, 2, 2, 2},  {2, 8, 4, 4, 4},  {3, 4, 2, 4, 2},  {2, 6, 4, 2, 6}};
  tests::Share share(2, 8);
  for (const Case& each : cases) {
    for (const char* const shard : {"ddp", "zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "zero++"}) {
      for (const char* const algorithm : {"auto", "hierarchical"}) {
        for (const TierKind tier : {TierKind::device, TierKind::host, TierKind::nvme}) {
          if (!share.takes()) continue;
          INFO("stages ", each.stages, ", rows ", each.rows, ", node_size ", each.node_size, ", group ", each.group,
               ", shard ", std::string(shard), ", algorithm ", std::string(algorithm), ", tier ",
               static_cast<int>(tier));
          TrainerOptions options = job_of(shard, each.stages, each.rows, each.node_size, each.group);
          options.algorithms = {algorithm, algorithm, algorithm};
          options.tiers.optimizer = options.tiers.parameters = options.tiers.gradients = tier;
          CHECK(distinct_rows(options, options.node_of) == each.distinct);
          const Prediction some = predicted(options, {.distinct_only = true}), all = predicted(options, {});
          check_alike(some, all);
          if (each.distinct == each.rows) CHECK(some.step_seconds == all.step_seconds);
          if (each.distinct < each.rows) CHECK(some.handlers < all.handlers);
        }
      }
    }
  }
}

TEST_CASE("rows that differ, or meet in messages, are all simulated") {
  const PredictionOptions distinct{.distinct_only = true};
  const TrainerOptions usual = job_of("zero1", 1, 8, 2, 2);
  const std::uint64_t few = predicted(usual, distinct).handlers, many = predicted(usual, {}).handlers;
  CHECK(few < many / 2);
  const Prediction traced = predicted(usual, {.trace = true, .distinct_only = true});
  CHECK(traced.handlers == many);
  CHECK(traced.trace.size() == 8);
  // A rank without an equivalent one delays all of them.
  PredictionOptions slow = distinct;
  slow.disturbances.slow_ranks = {1, 1, 1, 1, 1, 1, 1, 3};
  CHECK(predicted(usual, slow).handlers > many / 2);
  CHECK(predicted(usual, slow).step_seconds > 2 * predicted(usual, distinct).step_seconds);
  // Plans send messages from row to row, and so do Muon and stages that pull shards.
  TrainerOptions plans = usual;
  plans.gpu->nccl = false;
  CHECK(predicted(plans, distinct).handlers == predicted(plans, {}).handlers);
  TrainerOptions muon = usual;
  muon.tiers.rule = UpdateRule::muon;
  CHECK(predicted(muon, distinct).handlers == predicted(muon, {}).handlers);
  TrainerOptions pulls = job_of("zero3", 2, 4, 2, 2);
  pulls.policy = Policy::message_driven;
  CHECK(predicted(pulls, distinct).handlers == predicted(pulls, {}).handlers);
  CHECK(predicted(pulls, distinct).step_seconds == predicted(pulls, {}).step_seconds);
}
