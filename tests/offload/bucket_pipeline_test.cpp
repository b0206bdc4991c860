#include "offload/bucket_pipeline.hpp"

#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::runtime;

namespace {

constexpr std::array commit_modes = {CommitMode::always, CommitMode::on_resolve, CommitMode::by_flip};

/// Pipeline stages that take random times, and a record of what they did.
struct Recorder {
  enum Stage { fetch, compute, store, refresh };

  Recorder(EventLoop& event_loop, std::size_t buckets, std::uint64_t seed)
      : loop(event_loop), random(seed), begun(buckets), ended(buckets), without_slot(buckets) {}

  BucketStages::Stage stage(Stage which) {
    return [this, which](const BucketPass& pass, Handler done) {
      ++begun[pass.bucket][which];
      check(pass, which);
      // Some end at once: a stage may call `done` before it returns.
      if (random() % 4 == 0) return end(pass, which, done);
      loop.after(std::chrono::microseconds(random() % 300), [=, this] { end(pass, which, done); });
    };
  }
  BucketStages stages() { return {stage(fetch), stage(compute), stage(store), stage(refresh)}; }

  void check(const BucketPass& pass, Stage which) {
    CHECK(begun[pass.bucket][which] == 1);
    if (without_slot[pass.bucket]) {
      CHECK(pass.slot == 0);
    } else if (which == fetch) {
      REQUIRE(taken.count(pass.slot) == 0);
      taken.emplace(pass.slot, pass.bucket);
      order.push_back(pass.bucket);
      most = std::max(most, taken.size());
    }
    if (!without_slot[pass.bucket]) REQUIRE(taken.at(pass.slot) == pass.bucket);
    if (which == compute) CHECK(is_ready.at(pass.bucket));
    if (which > fetch) CHECK(ended[pass.bucket][std::min<int>(which - 1, compute)] == 1);
  }

  void end(const BucketPass& pass, Stage which, const Handler& done) {
    ++ended[pass.bucket][which];
    const bool leaves = which >= store && ended[pass.bucket][store] == 1 && ended[pass.bucket][refresh] == 1;
    if (leaves && !without_slot[pass.bucket]) taken.erase(pass.slot);
    done();
  }

  void new_step() {
    for (auto& counts : begun) counts = {};
    for (auto& counts : ended) counts = {};
    is_ready.assign(begun.size(), false);
    order.clear();
    taken.clear();  // an update that was not committed releases slots without a store
  }

  EventLoop& loop;
  std::mt19937_64 random;
  std::vector<std::array<int, 4>> begun, ended;
  std::vector<bool> is_ready;
  std::vector<bool> without_slot;
  std::vector<std::size_t> order;
  std::map<std::size_t, std::size_t> taken;  ///< slot → bucket
  std::size_t most = 0;
};

}  // namespace

TEST_CASE(
    "each bucket of a step passes each stage once and in order, in no more slots than the depth, and some in "
    "none") {
  for (const std::uint64_t seed : test::seeds(200)) {
    CAPTURE(seed);
    for (const CommitMode commit_mode : commit_modes) {
      std::mt19937_64 random(seed);
      const std::size_t buckets = random() % 12, depth = 1 + random() % 5;
      Simulation simulation(1, {.seed = seed});
      EventLoop& loop = simulation.loop(0);
      Recorder recorder(loop, buckets, seed);
      const unsigned long share = random() % 3;  // no, some or all buckets have no slot
      for (std::size_t bucket = 0; bucket < buckets; ++bucket) recorder.without_slot[bucket] = share > random() % 2;
      BucketPipeline pipeline(loop,
                              {.buckets = buckets,
                               .depth = depth,
                               .commit_mode = commit_mode,
                               .without_slot = share == 0 ? std::vector<bool>() : recorder.without_slot},
                              recorder.stages());
      int left = 5;
      std::function<void()> next = [&] {
        recorder.new_step();
        const bool counts = commit_mode == CommitMode::always || random() % 3 != 0;
        pipeline.begin([&, counts](bool counted) {
          CHECK(counted == counts);
          CHECK(std::is_sorted(recorder.order.begin(), recorder.order.end()));
          for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            CHECK(recorder.begun[bucket] == recorder.ended[bucket]);  // no operation is in progress
            if (counted) CHECK(recorder.begun[bucket] == std::array{1, 1, 1, 1});
            if (!counted && commit_mode == CommitMode::on_resolve)
              CHECK(recorder.begun[bucket][Recorder::compute] == 0);
          }
          if (--left == 0) return loop.stop();
          next();
        });
        // Gradients arrive in any order. A skipped step may end before the last one.
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
          loop.after(std::chrono::microseconds(random() % 1000), [&, bucket, step = left] {
            if (step != left) return;
            recorder.is_ready[bucket] = true;
            pipeline.ready(bucket);
          });
        }
        if (commit_mode != CommitMode::always)
          loop.after(std::chrono::microseconds(random() % 2000), [&, counts] { pipeline.resolve(counts); });
      };
      next();
      simulation.run();
      CHECK(recorder.most <= depth);
    }
  }
}

namespace {

/// Virtual time of a step in microseconds, given the times of its stages and of the arrival of its gradients.
struct Times {
  int fetch, compute, store, refresh;
  int between_gradients;
  int answer_after = 0;  ///< the last gradient
};

Duration time_of_step(const Times& times, std::size_t buckets, std::size_t depth, CommitMode commit_mode,
                      std::vector<std::size_t>* fetched_before_answer = nullptr,
                      const std::vector<bool>& without_slot = {}) {
  Simulation simulation(1, {.longest_post_delay = Duration(0)});
  EventLoop& loop = simulation.loop(0);
  bool answered = false;
  // One transfer of each kind and one step at a time, as on a disk and a stream.
  const auto stage = [&loop](int microseconds) {
    return [&loop, microseconds, free_at = std::make_shared<Duration>()](const BucketPass&, Handler done) {
      *free_at = std::max(*free_at, loop.now()) + std::chrono::microseconds(microseconds);
      loop.after(*free_at - loop.now(), done);
    };
  };
  BucketStages stages{stage(times.fetch), stage(times.compute), stage(times.store), stage(times.refresh)};
  stages.fetch = [&, real = stages.fetch](const BucketPass& pass, Handler done) {
    if (!answered && fetched_before_answer != nullptr) fetched_before_answer->push_back(pass.bucket);
    real(pass, done);
  };
  BucketPipeline pipeline(
      loop, {.buckets = buckets, .depth = depth, .commit_mode = commit_mode, .without_slot = without_slot}, stages);
  Duration end{};
  pipeline.begin([&](bool) {
    end = loop.now();
    loop.stop();
  });
  for (std::size_t bucket = 0; bucket < buckets; ++bucket)
    loop.after(std::chrono::microseconds(times.between_gradients) * (bucket + 1),
               [&, bucket] { pipeline.ready(bucket); });
  if (commit_mode != CommitMode::always)
    loop.after(std::chrono::microseconds(times.between_gradients * static_cast<int>(buckets) + times.answer_after),
               [&] {
                 answered = true;
                 pipeline.resolve(true);
               });
  simulation.run();
  return end;
}

}  // namespace

TEST_CASE("stages of different buckets overlap: a step takes little more than its longest part") {
  using namespace std::chrono_literals;
  const Times times{.fetch = 80, .compute = 60, .store = 80, .refresh = 40, .between_gradients = 100};
  CHECK(time_of_step(times, 20, 3, CommitMode::always) <= 20 * 100us + 60us + 80us);  // the last gradient's stages
  CHECK(time_of_step(times, 20, 3, CommitMode::by_flip) <= 20 * 100us + 60us + 80us);
  CHECK(time_of_step(times, 20, 1, CommitMode::always) > 20 * 200us);  // one slot: one after the other
  // Compute waits for the decision: the rest of the work follows the gradients.
  CHECK(time_of_step(times, 20, 3, CommitMode::on_resolve) >= 20 * 100us + 17 * 80us);
  CHECK(time_of_step(times, 20, 20, CommitMode::on_resolve) <= 20 * 100us + 60us + 20 * 80us);
}

TEST_CASE("buckets are fetched into every slot while the decision is pending") {
  std::vector<std::size_t> fetched;
  time_of_step({10, 10, 10, 10, 10, 1000}, 6, 4, CommitMode::on_resolve, &fetched);
  CHECK(fetched == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("buckets without a slot are fetched first, and leave all slots to the others") {
  std::vector<std::size_t> fetched;
  time_of_step({10, 10, 10, 10, 10, 1000}, 6, 2, CommitMode::on_resolve, &fetched,
               {true, false, true, false, false, false});
  CHECK(fetched == std::vector<std::size_t>{0, 2, 1, 3});
}

TEST_CASE("calls that do not match a step's state are refused") {
  Simulation simulation(1, {});
  EventLoop& loop = simulation.loop(0);
  const auto stage = [](const BucketPass&, const Handler&) {};
  const BucketStages stages{stage, stage, stage, stage};
  CHECK_THROWS_AS(BucketPipeline(loop, {.buckets = 3, .depth = 0}, stages), Error);
  BucketPipeline pipeline(loop, {.buckets = 3, .depth = 2}, stages);
  CHECK_THROWS_AS(pipeline.ready(0), Error);
  pipeline.begin([](bool) {});
  pipeline.ready(0);
  CHECK_THROWS_AS(pipeline.ready(0), Error);
  CHECK_THROWS_AS(pipeline.ready(3), Error);
  CHECK_THROWS_AS(pipeline.resolve(true), Error);  // no decision is pending
  CHECK_THROWS_AS(pipeline.begin([](bool) {}), Error);
}
