#include "offload/bucket_pipeline.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/doubles/simulated_tier.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/offload/bucket_states.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using namespace ranvier::runtime;

namespace {

constexpr std::array commit_modes = {CommitMode::always, CommitMode::on_resolve, CommitMode::by_flip};

/// Pipeline stages that take random times, and a record of what they did.
struct Recorder {
  enum Stage { fetch, compute, store, refresh };

  Recorder(EventLoop& event_loop, std::size_t buckets, std::uint64_t seed)
      : loop(event_loop), random(seed), begun(buckets), ended(buckets) {}

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
    if (which == fetch) {
      REQUIRE(taken.count(pass.slot) == 0);
      taken.emplace(pass.slot, pass.bucket);
      order.push_back(pass.bucket);
      most = std::max(most, taken.size());
    }
    REQUIRE(taken.at(pass.slot) == pass.bucket);
    if (which == compute) CHECK(is_ready.at(pass.bucket));
    if (which > fetch) CHECK(ended[pass.bucket][std::min<int>(which - 1, compute)] == 1);
  }

  void end(const BucketPass& pass, Stage which, const Handler& done) {
    ++ended[pass.bucket][which];
    const bool leaves = which >= store && ended[pass.bucket][store] == 1 && ended[pass.bucket][refresh] == 1;
    if (leaves) taken.erase(pass.slot);
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
  std::vector<std::size_t> order;
  std::map<std::size_t, std::size_t> taken;  ///< slot → bucket
  std::size_t most = 0;
};

/// Announces all buckets after random times, nearly in order or in any order, and resolves the step on request. After a
/// skip no more buckets are announced.
void play_step(EventLoop& loop, BucketPipeline& pipeline, CommitMode commit_mode, std::size_t buckets, bool counts,
               std::mt19937_64& random, const std::function<void(std::size_t)>& on_ready,
               const std::function<void(bool)>& ended) {
  pipeline.begin(ended);
  const auto skipped = std::make_shared<bool>(false);
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    loop.after(std::chrono::microseconds(random() % 1000), [=, &pipeline] {
      if (*skipped) return;
      on_ready(bucket);
      pipeline.ready(bucket);
    });
  }
  if (commit_mode != CommitMode::always)
    loop.after(std::chrono::microseconds(random() % 2000), [=, &pipeline] {
      *skipped = !counts;
      pipeline.resolve(counts);
    });
}

}  // namespace

TEST_CASE("each bucket of a step passes each stage once and in order, in no more slots than the depth") {
  for (const std::uint64_t seed : test::seeds(200)) {
    CAPTURE(seed);
    for (const CommitMode commit_mode : commit_modes) {
      std::mt19937_64 random(seed);
      const std::size_t buckets = random() % 12, depth = 1 + random() % 5;
      Simulation simulation(1, {.seed = seed});
      EventLoop& loop = simulation.loop(0);
      Recorder recorder(loop, buckets, seed);
      BucketPipeline pipeline(loop, {.buckets = buckets, .depth = depth, .commit_mode = commit_mode},
                              recorder.stages());
      int left = 5;
      std::function<void()> next = [&] {
        recorder.new_step();
        const bool counts = commit_mode == CommitMode::always || random() % 3 != 0;
        play_step(
            loop, pipeline, commit_mode, buckets, counts, random,
            [&](std::size_t bucket) { recorder.is_ready[bucket] = true; },
            [&, counts](bool counted) {
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
      };
      next();
      simulation.run();
      CHECK(recorder.most <= depth);
    }
  }
}

TEST_CASE("AdamW in buckets gives the bits of one pass, regardless of depth, bucket size, order and commit mode") {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("step", StreamWidth::whole);
  for (const std::uint64_t seed : test::seeds(40)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::size_t n = 1 + random() % 5000;
    const std::size_t bucket_elements = 1 + random() % 2000, depth = 1 + random() % 4;
    for (const CommitMode commit_mode : commit_modes) {
      const BucketLayout layout(n, bucket_elements, {4, 4, 4});
      CAPTURE_ALL(n, bucket_elements);

      // Reference without buckets: arrays w, m, v of all elements, and the gradients of each step.
      constexpr int steps = 4;
      std::array<std::vector<float>, 3> plain;
      std::normal_distribution<float> normal;
      for (auto& array : plain) array.resize(n);
      for (float& w : plain[0]) w = normal(random);
      std::vector<std::vector<float>> gradients(steps, std::vector<float>(n));
      for (auto& gradient : gradients)
        for (float& g : gradient) g = normal(random);
      const std::vector<DecaySegment> segments = {{0, n / 3, true}, {n / 3, n, false}};

      Simulation simulation(1, {.seed = seed});
      EventLoop& loop = simulation.loop(0);
      const auto delay = [&] { return std::chrono::microseconds(random() % 500); };
      SimulatedFiles tier(loop, delay);
      BucketStates states(tier, layout, commit_mode);
      tier.start();
      for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket)
        std::memcpy(tier.bytes()[0].data() + layout.record_offset(bucket), plain[0].data() + layout.begin(bucket),
                    4 * (layout.end(bucket) - layout.begin(bucket)));
      const Blocks slots(depth * layout.slot_bytes());
      std::array<std::vector<float>, 2> parameters = {plain[0], plain[0]};
      std::vector<float> reduced(n);  // the gradient of a bucket is noise until it is ready
      std::int64_t counted_steps = 0;

      const auto slot_of = [&](const BucketPass& pass) {
        return slots.span(pass.slot * layout.slot_bytes(), layout.slot_bytes());
      };
      const auto array_of = [&](const BucketPass& pass, std::size_t array) {
        return reinterpret_cast<float*>(slot_of(pass).data() + layout.array_offset(pass.bucket, array));
      };
      const auto options = [&] { return AdamWOptions{.learning_rate = 1e-2, .step = counted_steps + 1}; };
      BucketPipeline pipeline(
          loop, {.buckets = layout.buckets(), .depth = depth, .commit_mode = commit_mode},
          {.fetch = [&](const BucketPass& pass, Handler done) { states.fetch(pass, slot_of(pass), done); },
           .compute =
               [&](const BucketPass& pass, Handler done) {
                 loop.after(delay(), [&, pass, done] {
                   const std::size_t begin = layout.begin(pass.bucket), end = layout.end(pass.bucket);
                   std::vector<DecaySegment> cut;
                   for (const DecaySegment& segment : segments)
                     if (segment.begin < end && segment.end > begin)
                       cut.push_back({std::max(segment.begin, begin) - begin, std::min(segment.end, end) - begin,
                                      segment.decays});
                   adamw(*stream,
                         {.weights = array_of(pass, 0),
                          .m = array_of(pass, 1),
                          .v = array_of(pass, 2),
                          .gradient = reduced.data() + begin},
                         cut, options());
                   done();
                 });
               },
           .store = [&](const BucketPass& pass, Handler done) { states.store(pass, slot_of(pass), done); },
           .refresh =
               [&](const BucketPass& pass, Handler done) {
                 loop.after(delay(), [&, pass, done] {
                   std::copy_n(
                       array_of(pass, 0), layout.end(pass.bucket) - layout.begin(pass.bucket),
                       parameters[static_cast<std::size_t>(states.written())].data() + layout.begin(pass.bucket));
                   done();
                 });
               }});

      int step = 0;
      std::function<void()> next = [&] {
        const bool counts = commit_mode == CommitMode::always || step != 1;  // the second is skipped
        std::fill(reduced.begin(), reduced.end(), 1e30f);
        play_step(
            loop, pipeline, commit_mode, layout.buckets(), counts, random,
            [&](std::size_t bucket) {
              std::copy(gradients[step].begin() + layout.begin(bucket),
                        gradients[step].begin() + layout.end(bucket), reduced.begin() + layout.begin(bucket));
            },
            [&, counts](bool) {
              if (counts) {
                states.commit();
                adamw(*stream,
                      {.weights = plain[0].data(),
                       .m = plain[1].data(),
                       .v = plain[2].data(),
                       .gradient = gradients[step].data()},
                      segments, options());
                ++counted_steps;
              }
              // Committed states equal the result of one pass over everything; after a skip they are unchanged.
              const auto& kept = tier.bytes()[static_cast<std::size_t>(states.current())];
              for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket)
                for (std::size_t array = 0; array < 3; ++array)
                  CHECK(std::memcmp(kept.data() + layout.record_offset(bucket) + layout.array_offset(bucket, array),
                                    plain[array].data() + layout.begin(bucket),
                                    4 * (layout.end(bucket) - layout.begin(bucket))) == 0);
              CHECK(parameters[static_cast<std::size_t>(states.current())] == plain[0]);
              if (++step == steps) return loop.stop();
              next();
            });
      };
      next();
      simulation.run();
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
                      std::vector<std::size_t>* fetched_before_answer = nullptr) {
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
  BucketPipeline pipeline(loop, {.buckets = buckets, .depth = depth, .commit_mode = commit_mode}, stages);
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
