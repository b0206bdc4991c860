// The text of a run's final summary: its bottleneck and its loss curve.
#include "apps/train/report.hpp"

#include "apps/view/series.hpp"
#include "models/families/gpt.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

/// Ranks with 10 s each, two stages and two rows.
struct Run {
  std::vector<RankTotals> ranks = std::vector<RankTotals>(4, {.seconds = 10, .forward = 2, .backward = 3});
  actors::TrainerOptions options;
  models::Architecture architecture = gpt(8);

  static models::Architecture gpt(int layers) {
    models::GptOptions sizes;
    sizes.layers = layers;
    sizes.vocab_size = 64;
    sizes.hidden = 32;
    sizes.heads = 2;
    return models::make_gpt(sizes);
  }
  Run() {
    options.grid = {2, 2};
    options.batch_size = 64;
    options.microbatch_size = 1;  // 32 microbatches: a bubble of 3%
  }
  /// Checks words of the line about the bottleneck, and words that it lacks.
  void prints(std::initializer_list<std::string_view> words,
              std::initializer_list<std::string_view> others = {}) const {
    const std::string line = bottleneck_line(ranks, options, architecture);
    INFO(line);
    CHECK(line.starts_with("bottleneck: "));
    check_lacks(line, {"\n"});
    check_has(line, words);
    check_lacks(line, others);
  }
};

std::size_t characters(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

}  // namespace

TEST_CASE("the final summary names the bottleneck, and a flag that may help") {
  Run run;
  run.prints({"overhead between passes", "computing: 50%"});
  Run waits;
  for (RankTotals& rank : waits.ranks) rank.weights = 3;
  waits.prints({"bottleneck: computing, 80%", "--precision bf16"});
  waits.options.precision.compute = runtime::DType::bf16;
  waits.prints({"--g-data"}, {"--precision bf16"});
  Run alone;
  alone.options.grid = {1, 1};
  alone.ranks.resize(1);
  alone.ranks[0].optimizer = 0.2;
  alone.prints({"overhead between passes"});
  for (std::size_t r : {2, 3}) run.ranks[r].backward = 6;
  run.prints({"stage 1, computing 80% of the time (average stage: 65%)", "--rebalance"}, {"--g-inter"});
  run.architecture = Run::gpt(2);  // one block per stage
  run.prints({"use a smaller --g-inter; no other --layers-per-stage is faster"}, {"--rebalance"});
  for (auto& rank : run.ranks) rank.forward = 5;
  run.prints({"bottleneck: computing, 95%"});
  run = {};
  for (auto& rank : run.ranks) rank.gather = 4;
  run.prints({"links, gathering 40%"});
  for (auto& rank : run.ranks) rank.reduce = 5;
  run.prints({"links, reducing 50%"});
  for (auto& rank : run.ranks) rank.optimizer = 6;
  run.prints({"optimizer, 60%", "--shard zero1"});
  run.options.tiers.optimizer = actors::TierKind::host;
  run.prints({"--optimizer-tier device"});
  run.ranks[1].seconds = 0;  // it has not trained
  CHECK(bottleneck_line(run.ranks, run.options, run.architecture).empty());
  CHECK(bottleneck_line({}, run.options, run.architecture).empty());
}

TEST_CASE("a disk that work waited for is named, with a remedy") {
  Run run;
  for (RankTotals& rank : run.ranks) rank.files = 3;
  run.prints({"bottleneck: disk, waiting 30%", "--nvme DIR,DIR", "--offload"});
  for (RankTotals& rank : run.ranks) rank.gather = 2.9;  // at the same time
  run.prints({"bottleneck: disk"});
  for (RankTotals& rank : run.ranks) rank.gather = 3.1;
  run.prints({"bottleneck: links"});
  run = {};
  for (RankTotals& rank : run.ranks) rank.checkpoint = 2;
  run.prints({"bottleneck: disk, waiting 20%", "--checkpoint-every"}, {"--nvme"});
  for (RankTotals& rank : run.ranks) rank.checkpoint = 0.5;
  run.prints({}, {"disk"});
}

TEST_CASE("a pipeline bubble is printed with the flags that match the run's schedule") {
  Run run;
  run.options.microbatch_size = 32;
  run.prints({"pipeline bubble, 40.0% with 1 microbatch: use a smaller --microbatch-size",
              "--policy zero-bubble or more --chunks-per-rank"});
  run.options.chunks_per_rank = 2;
  run.prints(
      {"pipeline bubble, 25.0% with 1 microbatch in 2 chunks", "--policy zero-bubble or more --chunks-per-rank"});
  run.options.chunks_per_rank = 1;
  run.options.batch_size = 128;  // two microbatches
  for (const auto policy : {actors::Policy::zero_bubble, actors::Policy::zb_h1, actors::Policy::message_driven}) {
    run.options.policy = policy;
    run.options.defer_weights = policy == actors::Policy::message_driven;
    for (auto& rank : run.ranks) rank.forward = 2, rank.backward = 5.3;  // half of the idle time is the bubble
    run.prints({"pipeline bubble, 14.3% with 2 microbatches"}, {"zero-bubble"});
    if (policy == actors::Policy::zb_h1) {  // refuses chunks
      run.prints({}, {"or more --chunks-per-rank"});
    } else {
      run.prints({"or more --chunks-per-rank"});
    }
  }
}

TEST_CASE("the printed bubble is the idle time of stages in virtual time") {
  // Idle time over compute time as in tests/bench/schedules/schedules.md, undisturbed, p stages and m microbatches.
  const auto idle = [](int p, int m, actors::Policy policy, int chunks = 1, int limit = 0) {
    actors::TrainerOptions options;
    options.grid = {p, 1};
    options.batch_size = m;
    options.policy = policy;
    options.chunks_per_rank = chunks;
    options.pipeline_limit = limit;
    const Bubble bubble = bubble_of(options);
    CHECK(!bubble.at_most);
    return bubble.share / (1 - bubble.share);
  };
  using enum actors::Policy;
  for (const auto policy : {message_driven, one_f_one_b, gpipe}) {
    CHECK(idle(1, 4, policy) == 0);
    CHECK(idle(2, 2, policy) == doctest::Approx(1.0 / 3));
    CHECK(idle(16, 64, policy) == doctest::Approx(0.15625));
    CHECK(idle(4, 8, policy, 2) == doctest::Approx(0.125));
    CHECK(idle(4, 8, policy, 4) == doctest::Approx(0.0625));
  }
  for (const auto policy : {zero_bubble, zb_h1}) CHECK(idle(4, 8, policy) == doctest::Approx(0.125));
  // Waves of three microbatches fill and drain three times.
  CHECK(idle(4, 8, gpipe, 1, 3) == doctest::Approx(0.75));
  actors::TrainerOptions again;
  again.grid = {4, 1};
  again.batch_size = 8;
  again.recompute = 2;
  CHECK(bubble_of(again).at_most);
  CHECK(bubble_text(again) == "at most 27.3% with 8 microbatches");
}

TEST_CASE("a curve in a terminal falls with the loss, and its scale has its end values") {
  Series series;
  for (int step = 1; step <= 1000; ++step) series.add(step, {10 - step * 0.009, 1, 1, 1, 1, 1});
  const std::vector<std::string> lines = lines_of(text_plot(series, Metric::loss, 40, 5));
  REQUIRE(lines.size() == 6);
  for (int i = 0; i < 6; ++i) CHECK(characters(lines[static_cast<std::size_t>(i)]) == 50);
  CHECK(lines[0].starts_with("    9.9"));  // the first points, binned
  CHECK(lines[4].substr(0, 10).ends_with("1.05 "));
  check_has(lines[5], {"step 1000"});
  // The first line has dots only at the left, the last one only at the right.
  const std::string blank = "\u2800";
  CHECK(lines[0].ends_with(blank + blank + blank));
  CHECK(lines[4].substr(10).starts_with(blank + blank + blank));
  CHECK(!lines[4].ends_with(blank));
}

TEST_CASE("there is no curve for a few steps, one value, or no values") {
  Series few, flat, none;
  for (int step = 1; step <= 7; ++step) few.add(step, {1.0 * step, 1, 1, 1, 1, 1});
  for (int step = 1; step <= 100; ++step) flat.add(step, {3, 1, 1, 1, 1, 1});
  for (int step = 1; step <= 100; ++step) none.add(step, {std::numeric_limits<double>::quiet_NaN(), 1, 1, 1, 1, 1});
  for (const Series* series : {&few, &flat, &none}) CHECK(text_plot(*series, Metric::loss).empty());
}
