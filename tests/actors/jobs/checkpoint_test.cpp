// Checkpoints written during training, and jobs that resume from them: any grid resumes a checkpoint of any other.
#include "actors/checkpoint/gated_sink.hpp"
#include "actors/checkpoint/scalars_json.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/files/json_text.hpp"
#include "runtime/kernels/int8_block.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/memory_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

#include <boost/json/serialize.hpp>

using namespace ranvier;
using namespace ranvier::tests;
using runtime::DType;

namespace {

constexpr std::int64_t run_steps = 5;
constexpr int gpt_layers = 5;  // with embedding and head

actors::TrainerOptions longer_run() {
  auto options = small_run();
  options.steps = run_steps;
  options.learning_rate = {
      .peak = 1e-2, .warmup_steps = 2, .steps = run_steps, .decay = actors::LearningRateOptions::Decay::cosine};
  return options;
}

models::GptOptions gpt_with_dropout(const actors::TrainerOptions& options) {
  auto gpt = in_precision(small_gpt(gpt_layers - 2), options.precision);
  gpt.dropout = 0.1f;
  return gpt;
}

/// A run with one of all shardings, in any placement.
actors::TrainerOptions draw_run(Draw& draw) {
  auto options = longer_run();
  options.grid.g_data = draw.of(1, 2, 4);
  options.group_size = 2 % options.grid.g_data;
  options.sharding = draw_sharding(draw);
  options.precision = {draw.of(DType::f32, DType::f32, DType::bf16, DType::f16), DType::f32};
  if (options.precision.compute == DType::f16)
    options.loss_scale = {.scale = 1024, .dynamic = true, .growth_interval = 100};
  options.clip = draw.of(0.0, 0.05, 1e3);
  draw_placement(options, gpt_layers, draw);
  return options;
}

DType draw_moments(Draw& draw) { return draw.of(DType::f32, DType::bf16, DType::i8); }

/// Rounds the moments of a checkpoint to a type.
SavedState rounded_moments(SavedState state, DType moments) {
  for (auto& [name, values] : state.arrays) {
    const bool is_m = name.ends_with(" m");
    if (!is_m && !name.ends_with(" v")) continue;
    if (moments == DType::i8) {
      const DType dtype = is_m ? DType::i8 : DType::u8;
      std::vector<runtime::Int8Block> blocks(runtime::ceil_divide(values.size(), runtime::int8_block_elements));
      runtime::blocks_of_floats(blocks.data(), values.data(), dtype, values.size());
      runtime::floats_of_blocks(values.data(), blocks.data(), dtype, values.size());
    } else if (moments == DType::bf16) {
      for (float& value : values) value = runtime::to_float(runtime::from_float<runtime::Bf16>(value));
    }
  }
  return state;
}

/// A checkpoint of a run, except the last one.
const std::pair<const std::int64_t, SavedState>& draw_state(const CheckpointedResult& run, Draw& draw) {
  REQUIRE(run.states.size() > 1);
  return *std::next(run.states.begin(), draw(0, static_cast<int>(run.states.size()) - 2));
}

/// Checks that `late`, which resumed from a checkpoint of step `from`, continues like `whole`.
void check_goes_on(const CheckpointedResult& whole, const CheckpointedResult& late, std::int64_t from) {
  const auto skipped = static_cast<std::size_t>(from);
  REQUIRE(late.job.steps.size() + skipped == whole.job.steps.size());
  for (std::size_t s = 0; s < late.job.steps.size(); ++s) {
    const actors::StepResult &a = whole.job.steps[s + skipped], &b = late.job.steps[s];
    CAPTURE(a.step);
    CHECK(a.step == b.step);
    CHECK(a.loss == b.loss);
    CHECK((a.gradient_norm == b.gradient_norm || a.skipped));
    CHECK(a.learning_rate == b.learning_rate);
    CHECK(a.loss_scale == b.loss_scale);
    CHECK(a.skips == b.skips);
  }
  CHECK(whole.job.weights == late.job.weights);
  CHECK((whole.states.at(run_steps) == late.states.at(run_steps)));
}

}  // namespace

TEST_CASE("checkpoints do not change any bit of a run, and contain its states after their step") {
  const auto check = [](const actors::TrainerOptions& options, Devices kind, std::uint64_t seed) {
    const auto gpt = gpt_with_dropout(options);
    const auto plain = run_simulated(gpt, options, seed, kind);
    // Segments are written so slowly that steps must wait for them.
    const auto checked = run_checkpointed(gpt, options, {.every = 1, .slowest_put_us = 5000}, seed + 1, kind);
    check_same_bits(plain, checked.job);
    REQUIRE(checked.states.size() > 1);
    REQUIRE(checked.results.size() == checked.states.size());
    for (const auto& result : checked.results) {
      CHECK(result.failure.empty());
      CHECK(result.bytes > 0);
    }
    for (const auto& [step, state] : checked.states) {
      CAPTURE(step);
      auto shorter = options;
      shorter.steps = step;
      const auto ended = run_checkpointed(gpt, shorter, {}, 5);
      CHECK((ended.states.at(step) == state));
    }
  };
  auto fixed = longer_run();
  fixed.grid = {2, 2};
  fixed.clip = 0;  // every step counts
  check(fixed, Devices::delayed, 3);
  fixed.clip = 1;
  fixed.precision.compute = DType::bf16;
  fixed.tiers = {.gradients = actors::TierKind::host,
                 .optimizer = actors::TierKind::host,
                 .step = actors::StepLocation::host,
                 .commit = actors::Commit::flip,
                 .bucket_elements = 600};
  check(fixed, Devices::delayed, 3);
  // States on the device change earlier in an update than those that are fetched and stored.
  fixed.tiers = {.optimizer = actors::TierKind::host, .optimizer_budget = 20'000, .bucket_elements = 600};
  check(fixed, Devices::delayed, 3);
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(16, 200, 6)))) {
    CAPTURE(seed);
    Draw draw(seed);
    auto options = draw_run(draw);
    options.tiers.moments = draw_moments(draw);
    draw_rule(options, draw);
    draw_wire(options, false, draw);
    draw_placement(options, gpt_layers, draw);
    check(options, draw.of(Devices::inline_, Devices::delayed), seed);
  }
}

TEST_CASE("the optimizer waits only for buckets that are not copied yet") {
  auto options = longer_run();
  const auto gpt = gpt_with_dropout(options);
  options.checkpoint_staging = std::size_t{1} << 20;  // all of it at once
  const auto fast = run_checkpointed(gpt, options, {.every = 2, .slowest_put_us = 0}, 1);
  CHECK(fast.results.front().waited_seconds == 0);
  options.checkpoint_staging = 1;  // one segment
  const auto slow = run_checkpointed(gpt, options, {.every = 2, .slowest_put_us = 100'000}, 1);
  CHECK(slow.results.front().waited_seconds > 0);
  CHECK(slow.results.front().waited_seconds < slow.results.front().seconds);
  check_same_bits(fast.job, slow.job);
  CHECK((fast.states.at(2) == slow.states.at(2)));
}

TEST_CASE("a run resumes from any of its steps, in any placement of its rows, to the bit") {
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(24, 300, 6)), 1000)) {
    CAPTURE(seed);
    Draw draw(seed);
    auto options = draw_run(draw);
    options.tiers.moments = draw_moments(draw);
    draw_rule(options, draw);
    draw_wire(options, false, draw);
    draw_placement(options, gpt_layers, draw);
    if (options.loss_scale.dynamic) {
      options.loss_scale.growth_interval = 2;  // grows during the run
      options.fault = overflow(0, 2);
    }
    const auto gpt = gpt_with_dropout(options);
    const auto whole =
        run_checkpointed(gpt, options, {.every = 1}, seed, draw.of(Devices::inline_, Devices::delayed));
    const auto& [step, state] = draw_state(whole, draw);
    draw_placement(options, gpt_layers, draw);
    if (step >= 2) options.fault.reset();
    const auto late =
        run_checkpointed(gpt, options, {.from = &state}, seed + 1, draw.of(Devices::inline_, Devices::delayed));
    check_goes_on(whole, late, step);
  }
}

TEST_CASE("a run whose refreshes round parameters to blocks resumes and is evaluated to the bit, on any tier") {
  using collectives::WireType;
  auto options = longer_run();
  options.grid = {1, 4};
  options.precision.compute = DType::bf16;
  options.wire = {.gather = {WireType::int8, WireType::int8}, .reduce = {WireType::int8, WireType::int4}};
  options.eval_every = 1;
  options.eval_samples = 8;
  for (const char* sharding : {"zero1", "paro-igg", "zero++"}) {
    for (const auto tier : {actors::TierKind::device, actors::TierKind::host}) {
      CAPTURE_ALL(std::string(sharding), offload::to_string(tier));
      options.sharding = collectives::parse_sharding(sharding);
      options.group_size = 2;
      options.tiers.parameters = tier;
      const auto gpt = gpt_with_dropout(options);
      const auto whole = run_checkpointed(gpt, options, {.every = 1}, 3);
      REQUIRE(whole.states.size() > 1);
      const auto& [step, state] = *whole.states.begin();
      check_goes_on(whole, run_checkpointed(gpt, options, {.from = &state}, 4), step);
      auto evaluation = options;
      evaluation.steps = evaluation.eval_every = 0;
      const auto evaluated = run_checkpointed(gpt, evaluation, {.at_end = false, .from = &state}, 5);
      CHECK(evaluated.job.evaluations == std::vector{whole.job.evaluations.at(static_cast<std::size_t>(step) - 1)});
    }
  }
}

TEST_CASE("a run that resumes with moments of another type rounds them, the same way on any grid") {
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(16, 200, 4)), 3000)) {
    CAPTURE(seed);
    Draw draw(seed);
    auto options = draw_run(draw);
    options.tiers.moments = draw_moments(draw);
    const auto whole = run_checkpointed(gpt_with_dropout(options), options, {.every = 1}, seed);
    const SavedState& state = draw_state(whole, draw).second;
    auto other = draw_run(draw);
    do {
      other.tiers.moments = draw_moments(draw);
    } while (other.tiers.moments == options.tiers.moments);
    INFO("moments ", to_string(options.tiers.moments), ", then ", to_string(other.tiers.moments));
    const auto gpt = gpt_with_dropout(other);
    const auto late = run_checkpointed(gpt, other, {.from = &state}, seed);
    const SavedState rounded = rounded_moments(state, other.tiers.moments);
    draw_placement(other, gpt_layers, draw);
    const auto same = run_checkpointed(gpt, other, {.from = &rounded}, seed + 1);
    check_same_bits(late.job, same.job);
    CHECK((late.states == same.states));
  }
}

TEST_CASE("any grid, sharding and precision resumes from any other") {
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(24, 300, 6)), 2000)) {
    CAPTURE(seed);
    Draw draw(seed);
    auto options = draw_run(draw);
    options.clip = 1;
    const auto whole = run_checkpointed(gpt_with_dropout(options), options, {.every = 1}, seed);
    const auto& [from, state] = draw_state(whole, draw);
    auto other = draw_run(draw);
    other.clip = 1;
    const bool is_rounded = options.precision.compute != DType::f32 || other.precision.compute != DType::f32;
    const auto late = run_checkpointed(gpt_with_dropout(other), other, {.from = &state}, seed);
    const double tolerance = is_rounded ? 2e-2 : 1e-4;
    REQUIRE(late.job.steps.size() + static_cast<std::size_t>(from) == whole.job.steps.size());
    for (const actors::StepResult& step : late.job.steps) {
      const actors::StepResult& same = whole.job.steps[static_cast<std::size_t>(step.step - 1)];
      CAPTURE(step.step);
      CHECK(step.loss == doctest::Approx(same.loss).epsilon(tolerance));
      CHECK(step.gradient_norm == doctest::Approx(same.gradient_norm).epsilon(5 * tolerance));
      CHECK(step.learning_rate == same.learning_rate);
    }
    const SavedState &a = whole.states.at(run_steps), &b = late.states.at(run_steps);
    CHECK(a.scalars.at("next_sample") == b.scalars.at("next_sample"));
    CHECK(a.scalars.at("applied_steps") == b.scalars.at("applied_steps"));
    for (const auto& [name, values] : a.arrays) {
      const std::vector<float>& others = b.arrays.at(name);
      double difference = 0, size = 0;
      for (std::size_t e = 0; e < values.size(); ++e) {
        difference += std::pow(static_cast<double>(values[e]) - static_cast<double>(others[e]), 2);
        size += std::pow(static_cast<double>(values[e]), 2);
      }
      CAPTURE(name);
      // If a gradient is zero except for rounding, like the gradients of keys' biases, AdamW turns it into full steps.
      CHECK(std::sqrt(difference) <= (is_rounded ? 0.2 : 0.05) * std::sqrt(size));
    }
  }
}

TEST_CASE("a resumed run with another batch size continues with the sample after the last one") {
  auto options = longer_run();
  const auto whole = run_checkpointed(small_gpt(), options, {.every = 2}, 1);
  options.batch_size = 2;
  options.steps = 4;
  const auto late = run_checkpointed(small_gpt(), options, {.from = &whole.states.at(2)}, 1);
  CHECK(late.job.steps.front().step == 3);
  const std::int64_t first = 2 * longer_run().batch_size;
  CHECK(std::get<std::int64_t>(whole.states.at(2).scalars.at("next_sample")) == first);
  CHECK(std::get<std::int64_t>(late.states.at(4).scalars.at("next_sample")) == first + 2 * options.batch_size);
}

TEST_CASE("a failed write costs a checkpoint, and no bit of the run") {
  auto options = longer_run();
  options.steps = 20;
  options.grid = {2, 2};
  const auto plain = run_simulated(small_gpt(2), options, 1);
  for (const int rank : {0, 3}) {
    CAPTURE(rank);
    const auto checked = run_checkpointed(
        small_gpt(2), options,
        {.every = 1, .slowest_put_us = 0, .write_fails = 2, .prepare_fails = 3, .failing_rank = rank}, 2);
    check_same_bits(plain, checked.job);
    REQUIRE(checked.results.size() > 3);
    for (std::size_t r = 0; r < checked.results.size(); ++r) {
      const actors::CheckpointResult& result = checked.results[r];
      CAPTURE(r);
      const std::string expected = r == 1   ? fmt::format("rank {}: no space at step {}", rank, result.step)
                                   : r == 2 ? fmt::format("no folder for step {}", result.step)
                                            : "";
      CHECK(result.failure == expected);
      CHECK(checked.states.count(result.step) == (expected.empty() ? 1 : 0));
    }
    CHECK((checked.discarded == std::vector{checked.results[1].step, checked.results[2].step}));
  }
}

TEST_CASE("a checkpoint that is due during another one starts after it, and the last step has one") {
  auto options = longer_run();
  options.steps = 12;
  options.grid = {1, 2};
  // A checkpoint takes several steps.
  const auto slow = run_checkpointed(small_gpt(2), options, {.every = 1, .slowest_put_us = 20'000}, 1);
  REQUIRE(!slow.results.empty());
  CHECK(slow.results.size() < 12);
  CHECK(slow.results.front().step == 1);
  CHECK(slow.results.back().step == 12);
  CHECK(slow.states.count(12) == 1);

  // A run that stops early is saved at that step.
  const auto stopped = run_checkpointed(small_gpt(2), options, {.every = 100}, 1, Devices::inline_, {{1, 3}});
  REQUIRE(stopped.results.size() == 1);
  CHECK(stopped.results.front().step == stopped.job.steps.back().step);
  CHECK(stopped.job.steps.size() < 12);
}

TEST_CASE("work that is due with the last step of a run is done then") {
  auto options = longer_run();
  options.grid = {1, 2};
  const CheckpointedJob weights{.every = 2, .at_end = false, .arrays = actors::Snapshot::weights_only};
  const auto stopped = run_checkpointed(small_gpt(2), options, weights, 1, Devices::inline_, {{1, 1}});
  REQUIRE(stopped.job.steps.size() == 2);
  CHECK(stopped.states.count(2) == 1);
  const auto between = run_checkpointed(small_gpt(2), options, weights, 1, Devices::inline_, {{1, 2}});
  REQUIRE(between.job.steps.size() == 3);
  CHECK(between.results.size() == 1);
  options.steps = 4;
  const auto ended = run_checkpointed(small_gpt(2), options, weights, 1);
  CHECK(ended.results.size() == 2);
  CHECK(ended.states.count(4) == 1);
}

TEST_CASE("evaluations and texts that a stop request precedes are left to the next run") {
  auto options = longer_run();
  options.grid = {2, 1};
  options.eval_every = 2;
  options.eval_samples = 2 * options.batch_size;
  options.sample = {.every = 2, .prompt = {3, 1}, .tokens = 4};
  const auto whole = run_checkpointed(small_gpt(2), options, {}, 1);
  REQUIRE(whole.job.evaluations.size() == 3);
  REQUIRE(whole.job.texts.size() == 3);
  // After step 1 the stop is agreed on with step 2, after step 2 in its evaluation, after step 5 in the last one.
  for (const auto& [asked, stops] : {std::pair{1, 2}, {2, 2}, {3, 4}, {5, 5}}) {
    CAPTURE(asked);
    const auto first = run_checkpointed(small_gpt(2), options, {}, 1, Devices::inline_, {{1, asked}});
    REQUIRE(first.job.steps.back().step == stops);
    CHECK(first.job.steps.back().evaluation_follows == (asked == stops));
    CHECK(first.job.evaluations.size() + 1 == static_cast<std::size_t>(stops + 1) / 2);
    const auto second = run_checkpointed(small_gpt(2), options, {.from = &first.states.at(stops)}, 1);
    auto evaluations = first.job.evaluations;
    evaluations.insert(evaluations.end(), second.job.evaluations.begin(), second.job.evaluations.end());
    CHECK(evaluations == whole.job.evaluations);
    auto texts = first.job.texts;
    texts.insert(texts.end(), second.job.texts.begin(), second.job.texts.end());
    CHECK(texts == whole.job.texts);
    CHECK(second.job.weights == whole.job.weights);
  }
  // A run without them is not delayed.
  const auto first = run_checkpointed(small_gpt(2), options, {}, 1, Devices::inline_, {{1, 1}});
  options.eval_every = 0;
  options.sample.every = 0;
  const auto second = run_checkpointed(small_gpt(2), options, {.from = &first.states.at(2)}, 1);
  CHECK(second.job.evaluations.empty());
  CHECK(second.job.texts.empty());
  CHECK(second.job.weights == whole.job.weights);
}

TEST_CASE("checkpoints are also written by time, and no faster than the rate limit") {
  auto options = longer_run();
  options.steps = 20;
  const auto by_time =
      run_checkpointed(small_gpt(2), options, {.period = std::chrono::milliseconds(1), .slowest_put_us = 0}, 1);
  CHECK(by_time.results.size() > 1);
  CHECK(by_time.results.size() < 20);
  // The last one need not be slow.
  const auto paced =
      run_checkpointed(small_gpt(2), options, {.every = 5, .bytes_per_second = 1e6, .slowest_put_us = 0}, 1);
  REQUIRE(paced.results.size() > 1);
  CHECK(paced.results.front().seconds > 0.8e-6 * static_cast<double>(paced.results.front().bytes));
  CHECK(paced.results.back().seconds < 0.1 * paced.results.front().seconds);
  // Nor is one in progress when the run ends, whose segments are all postponed.
  options.steps = 6;
  options.checkpoint_staging = std::size_t{1} << 20;
  const auto ending =
      run_checkpointed(small_gpt(2), options, {.every = 5, .bytes_per_second = 1e3, .slowest_put_us = 0}, 1);
  REQUIRE(ending.results.size() == 2);
  CHECK(ending.results.front().seconds < 1e-4 * static_cast<double>(ending.results.front().bytes));
}

TEST_CASE("a segment that waits for the rate limit is pending work, and counts as progress until that time") {
  struct Sink final : actors::StateSink {
    void put(const actors::StatePiece&, std::size_t, std::span<const std::byte>, std::uint64_t,
             runtime::Handler done) override {
      ++pieces;
      done();
    }
    int pieces = 0;
  } sink;
  runtime::Simulation simulation(1, {});
  runtime::EventLoop& loop = simulation.loop(0);
  actors::GatedSink gate(loop);
  gate.open(&sink, 1000);
  const std::vector<std::byte> blocks(4096);
  const actors::StatePiece piece;
  for (int i = 0; i < 2; ++i) gate.put(piece, 0, blocks, 0, [] {});
  CHECK(sink.pieces == 1);
  std::vector<std::uint64_t> done;
  for (int second = 0; second < 4; ++second) {
    loop.after(std::chrono::seconds(second), [&] {
      REQUIRE(loop.pending_work().any());
      done.push_back(loop.pending_work().under_way().front().where->done());
    });
  }
  loop.after(std::chrono::seconds(5), [&] { loop.stop(); });
  simulation.run();
  CHECK(std::is_sorted(done.begin(), done.end(), std::less_equal<>()));
  CHECK(sink.pieces == 2);
  CHECK(!loop.pending_work().any());
}

TEST_CASE("a rank that is slow with a checkpoint is named by the rank that waits for it") {
  auto options = longer_run();
  options.grid = {1, 2};
  std::vector<actors::Wait> waits;
  const CheckpointedJob job{.every = 1, .stuck_rank = 1, .waits = &waits};
  CHECK_THROWS_WITH_AS(static_cast<void>(run_checkpointed(small_gpt(2), options, job, 1)),
                       doctest::Contains("a rank is stuck"), Error);
  const auto named = std::find_if(waits.begin(), waits.end(), [](const actors::Wait& wait) {
    return wait.what == "its share of the checkpoint of step 1";
  });
  REQUIRE(named != waits.end());
  CHECK(named->rank == 1);
}

TEST_CASE("numbers of training state are read from JSON as they were written") {
  const std::vector<actors::StateScalar> scalars = {{"least", std::numeric_limits<std::int64_t>::min()},
                                                    {"most", std::numeric_limits<std::int64_t>::max()},
                                                    {"tenth", 0.1},
                                                    {"third", 1.0 / 3.0},
                                                    {"tiny", 0x1p-1074},
                                                    {"row", std::vector<std::int64_t>{3, -1}},
                                                    {"reals", std::vector<double>{0.1, 1.0 / 3.0}},
                                                    {"infinite", std::numeric_limits<double>::infinity()},
                                                    {"zero", -0.0}};
  const std::string text = boost::json::serialize(actors::scalars_to_json(scalars));
  const auto object = runtime::parse_json(text, "text").as_object();
  const auto read = actors::scalars_of_json(object, "text");
  CHECK(read == scalars);
  CHECK(std::signbit(std::get<double>(read.back().value)));
  for (const char* const wrong : {R"({"a": 0.5})", R"({"a": "1x"})", R"({"a": ""})", R"({"a": null})",
                                  R"({"a": [null]})", R"({"a": [1, "0x1p0"]})"}) {
    CAPTURE(wrong);
    const auto other = runtime::parse_json(wrong, "text").as_object();
    CHECK_THROWS_WITH_AS(static_cast<void>(actors::scalars_of_json(other, "FILE")),
                         doctest::Contains("FILE: a is "), Error);
  }
}

TEST_CASE("checkpoints add only staging to the memory plan, and allocate nothing later") {
  auto options = longer_run();
  options.grid = {2, 2};
  options.checkpoint_staging = 0;
  const auto architecture = models::make_gpt(small_gpt());
  const auto sample = RandomTokens(8, 37).sample_bytes();
  const auto pinned = [&] {
    return actors::plan_rank(architecture, sample, options, 1).memory.bytes(runtime::MemorySpace::pinned);
  };
  const std::size_t without = pinned();
  options.checkpoint_staging = std::size_t{1} << 16;
  CHECK(pinned() > without);
  CHECK(pinned() <= without + options.checkpoint_staging);
  // On a device that gives no pinned memory after training has started.
  options.grid = {1, 1};
  options.gpu = {{.scratch_bytes = 0, .staged = true}};
  const auto far = run_checkpointed(small_gpt(), options, {.every = 1}, 1, Devices::far);
  CHECK(far.states.size() > 1);
}

TEST_CASE("a checkpoint of weights only may be requested") {
  auto options = longer_run();
  const auto all = run_checkpointed(small_gpt(), options, {.every = 2}, 1);
  const auto weights =
      run_checkpointed(small_gpt(), options, {.every = 2, .arrays = actors::Snapshot::weights_only}, 1);
  CHECK(weights.states.at(2).arrays.size() * 3 == all.states.at(2).arrays.size());
  for (const auto& [name, values] : weights.states.at(2).arrays) CHECK(values == all.states.at(2).arrays.at(name));
}
