// The whole room on real devices, disks and time: AdamW in buckets whose states are in a tier, against one pass
// over everything.
#include "offload/bucket_pipeline.hpp"
#include "offload/bucket_states.hpp"
#include "offload/file_tier.hpp"
#include "offload/host_tier.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/device.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/seeds.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::runtime;

namespace {

constexpr int steps = 5;

/// Elements of the model and what happened to it: gradients of each step, and whether it counts.
struct Story {
  explicit Story(std::size_t n, std::uint64_t seed) : weights(n), gradients(steps, std::vector<float>(n)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& w : weights) w = normal(random);
    for (auto& gradient : gradients)
      for (float& g : gradient) g = normal(random);
    for (int step = 0; step < steps; ++step) counts.push_back(step == 0 || random() % 2 == 0);
  }

  std::vector<float> weights;
  std::vector<std::vector<float>> gradients;
  std::vector<bool> counts;
};

AdamWOptions options_of(std::int64_t step) { return {.learning_rate = 1e-2, .step = step}; }

std::vector<float> in_one_pass(const Story& story, bool all_count) {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("step", StreamWidth::whole);
  const std::size_t n = story.weights.size();
  std::vector<float> w = story.weights, m(n), v(n);
  std::int64_t counted = 0;
  for (int step = 0; step < steps; ++step)
    if (all_count || story.counts[step])
      adamw(*stream, {.weights = w.data(), .m = m.data(), .v = v.data(), .gradient = story.gradients[step].data()},
            {{0, n, true}}, options_of(++counted));
  return w;
}

/// A loop, a device and a tier that `make` makes, and the parameters after all steps.
using MakeTier = std::function<std::unique_ptr<Tier>(EventLoop&, Device&, Stream& fetches, Stream& stores)>;

std::vector<float> in_buckets(const Story& story, const MakeTier& make, std::size_t bucket_elements,
                              std::size_t depth, Counting counting) {
  const std::size_t n = story.weights.size();
  AsioLoop loop;
  const auto device = make_cpu_device({.threads = 2});
  device->on_failure([&](std::exception_ptr error) { loop.stop(error); });
  const auto computing = device->make_stream("step", StreamWidth::whole);
  const auto fetching = device->make_stream("fetch", StreamWidth::one);
  const auto storing = device->make_stream("store", StreamWidth::one);
  const auto refreshing = device->make_stream("refresh", StreamWidth::one);

  const auto tier = make(loop, *device, *fetching, *storing);
  BucketStates states(*tier, BucketLayout(n, bucket_elements, {4, 4, 4}), "optimizer states", counting);
  const BucketLayout& layout = states.layout();
  MemoryPlan plan;
  tier->plan(plan);
  const MemoryId slots = plan.add(
      {MemoryKind::optimizer, MemorySpace::device, "buckets", Tier::whole_blocks(layout.slot_bytes()), depth});
  const MemoryId parameters = plan.add({MemoryKind::parameters, MemorySpace::device, "parameters", 4 * n, 2});
  const Arena arena(*device, plan);
  tier->start(arena);

  const auto slot = [&](const BucketPass& pass) {
    return std::span(arena.slot(slots, pass.slot), layout.slot_bytes());
  };
  const auto array = [&](const BucketPass& pass, std::size_t index) {
    return reinterpret_cast<float*>(slot(pass).data() + layout.array_offset(pass.bucket, index));
  };
  const auto elements = [&](std::size_t bucket) { return layout.end(bucket) - layout.begin(bucket); };
  const auto then = [&](Stream& stream, Handler done) {
    stream.call_back([&loop, done = std::move(done)] { loop.post(done); });
  };

  // The first weights go to the tier through a slot, one bucket after the other.
  std::size_t bucket = 0;
  std::function<void()> fill = [&] {
    if (bucket == layout.buckets()) return loop.stop();
    const BucketPass pass{.bucket = bucket++};
    std::copy_n(story.weights.begin() + layout.begin(pass.bucket), elements(pass.bucket), array(pass, 0));
    for (const std::size_t zero : {1, 2}) std::fill_n(array(pass, zero), elements(pass.bucket), 0.0f);
    states.store(pass, slot(pass), fill);
  };
  fill();
  loop.run();

  int step = 0;
  std::int64_t counted = 0;
  std::vector<float> reduced(n);
  BucketPipeline pipeline(
      loop, {.buckets = layout.buckets(), .depth = depth, .counting = counting},
      {.fetch = [&](const BucketPass& pass, Handler done) { states.fetch(pass, slot(pass), done); },
       .compute =
           [&](const BucketPass& pass, Handler done) {
             adamw(*computing,
                   {.weights = array(pass, 0),
                    .m = array(pass, 1),
                    .v = array(pass, 2),
                    .gradient = reduced.data() + layout.begin(pass.bucket)},
                   {{0, elements(pass.bucket), true}}, options_of(counted + 1));
             then(*computing, done);
           },
       .store = [&](const BucketPass& pass, Handler done) { states.store(pass, slot(pass), done); },
       .refresh =
           [&](const BucketPass& pass, Handler done) {
             copy(*refreshing, arena.slot_as<float>(parameters, pass.to) + layout.begin(pass.bucket),
                  array(pass, 0), 4 * elements(pass.bucket));
             then(*refreshing, done);
           }});

  std::function<void()> next = [&] {
    if (step == steps) return loop.stop();
    pipeline.begin([&](bool step_counted) {
      counted += step_counted ? 1 : 0;
      ++step;
      next();
    });
    for (std::size_t ready = 0; ready < layout.buckets(); ++ready) {
      loop.post([&, ready] {
        std::copy_n(story.gradients[step].begin() + layout.begin(ready), elements(ready),
                    reduced.begin() + layout.begin(ready));
        pipeline.ready(ready);
        if (counting != Counting::always && ready + 1 == layout.buckets()) pipeline.answer(story.counts[step]);
      });
    }
  };
  next();
  loop.run();
  const float* last = arena.slot_as<float>(parameters, static_cast<std::size_t>(pipeline.current()));
  return {last, last + n};
}

}  // namespace

TEST_CASE("training steps give the same bits with states in host memory, in files, or nowhere but on the device") {
  for (const std::uint64_t seed : test::seeds(3)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Story story(20000 + random() % 50000, seed);
    const ranvier::tests::TemporaryFolder folder;
    const MakeTier host = [](EventLoop& loop, Device&, Stream& fetches, Stream& stores) {
      return std::make_unique<HostTier>(loop, HostTier::Streams{fetches, stores});
    };
    const auto files = [&](bool uring) -> MakeTier {
      return [&, uring](EventLoop& loop, Device&, Stream&, Stream&) {
        return std::make_unique<FileTier>(loop, FileTierOptions{.directories = {folder.path(), folder.path()},
                                                                .depth = 4,
                                                                .request_bytes = 16 * 4096,
                                                                .uring = uring});
      };
    };
    for (const Counting counting : {Counting::always, Counting::on_answer, Counting::by_flip}) {
      const std::vector<float> expected = in_one_pass(story, counting == Counting::always);
      for (const MakeTier& make : {host, files(true), files(false)}) {
        const std::size_t bucket_elements = 1000 + random() % 20000, depth = 1 + random() % 4;
        CAPTURE(bucket_elements);
        CAPTURE(depth);
        CHECK(in_buckets(story, make, bucket_elements, depth, counting) == expected);
      }
    }
  }
}
