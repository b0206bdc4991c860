// An optimizer's step whose states pass through buckets, beside its parts: only the transfers, only AdamW, and
// AdamW in one pass over states that stay. All gradients are there at the start.
//
//   bucket_bench DIR[,DIR…] [elements [repeats]]      one JSON line per case; seconds are the best of the repeats,
//                                                     all parts in turns; bf16 gradients and parameters
#include "offload/bucket_pipeline.hpp"
#include "offload/bucket_states.hpp"
#include "offload/file_tier.hpp"
#include "offload/host_tier.hpp"
#include "runtime/arena.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/adamw.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::runtime;

namespace {

struct Case {
  std::string tier;  ///< host or nvme
  std::size_t bucket_elements;
  std::size_t depth;
};

/// Which parts of a step are done.
struct Parts {
  bool transfers;
  bool compute;
};

void run_case(const Case& c, const std::vector<std::filesystem::path>& directories, std::size_t n, int repeats) {
  AsioLoop loop;
  const auto device = make_cpu_device({.threads = 2});
  device->on_failure([&](std::exception_ptr error) { loop.stop(error); });
  const auto computing = device->make_stream("step", StreamWidth::whole);
  const auto fetching = device->make_stream("fetch", StreamWidth::one);
  const auto storing = device->make_stream("store", StreamWidth::one);

  std::unique_ptr<Tier> tier;
  if (c.tier == "host") {
    tier = std::make_unique<HostTier>(loop, HostTier::Streams{*fetching, *storing});
  } else {
    tier = std::make_unique<FileTier>(loop, FileTierOptions{.directories = directories});
  }
  BucketStates states(*tier, BucketLayout(n, c.bucket_elements, {4, 4, 4}), "optimizer states", Counting::always);
  const BucketLayout& layout = states.layout();
  MemoryPlan plan;
  tier->plan(plan);
  const MemoryId slots =
      plan.add({MemoryKind::optimizer, MemorySpace::device, "buckets", layout.slot_bytes(), c.depth});
  const MemoryId gradient = plan.add({MemoryKind::gradients, MemorySpace::device, "gradient", 2 * n, 1});
  const MemoryId parameters = plan.add({MemoryKind::parameters, MemorySpace::device, "parameters", 2 * n, 1});
  const MemoryId resident = plan.add({MemoryKind::optimizer, MemorySpace::device, "states that stay", 4 * n, 3});
  const Arena arena(*device, plan);
  tier->start(arena);
  for (std::size_t i = 0; i < n; ++i) {
    arena.slot_as<Bf16>(gradient)[i] = from_float<Bf16>(1e-3f * static_cast<float>(1 + i % 1000));
    arena.slot_as<Bf16>(parameters)[i] = {};
    for (const std::size_t array : {0, 1, 2}) arena.slot_as<float>(resident, array)[i] = 1e-4f;
  }

  const auto slot = [&](const BucketPass& pass) {
    return std::span(arena.slot(slots, pass.slot), layout.slot_bytes());
  };
  const auto step = [&](float* w, float* m, float* v, std::size_t begin, std::size_t end) {
    adamw(*computing,
          {.weights = w,
           .m = m,
           .v = v,
           .gradient = arena.slot_as<Bf16>(gradient) + begin,
           .gradient_dtype = DType::bf16,
           .working = arena.slot_as<Bf16>(parameters) + begin,
           .working_dtype = DType::bf16},
          {{0, end - begin, true}}, {.learning_rate = 1e-3});
  };

  Parts parts{};
  BucketPipeline pipeline(
      loop, {.buckets = layout.buckets(), .depth = c.depth},
      {.fetch =
           [&](const BucketPass& pass, Handler done) {
             if (!parts.transfers) return loop.post(std::move(done));
             states.fetch(pass, slot(pass), std::move(done));
           },
       .compute =
           [&](const BucketPass& pass, Handler done) {
             if (!parts.compute) return loop.post(std::move(done));
             const auto array = [&](std::size_t index) {
               return reinterpret_cast<float*>(slot(pass).data() + layout.array_offset(pass.bucket, index));
             };
             step(array(0), array(1), array(2), layout.begin(pass.bucket), layout.end(pass.bucket));
             computing->call_back([&loop, done = std::move(done)] { loop.post(done); });
           },
       .store =
           [&](const BucketPass& pass, Handler done) {
             if (!parts.transfers) return loop.post(std::move(done));
             states.store(pass, slot(pass), std::move(done));
           },
       .refresh = [&](const BucketPass&, Handler done) { done(); }});  // AdamW has rounded them already

  const auto seconds_of = [&](const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto pass = [&](Parts which) {
    parts = which;
    return seconds_of([&] {
      pipeline.begin([&](bool) { loop.stop(); });
      for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) pipeline.ready(bucket);
      loop.run();
    });
  };
  const auto stay = [&] {
    return seconds_of([&] {
      step(arena.slot_as<float>(resident, 0), arena.slot_as<float>(resident, 1), arena.slot_as<float>(resident, 2),
           0, n);
      computing->synchronize();
    });
  };

  std::array<double, 4> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int repeat = 0; repeat <= repeats;
       ++repeat) {  // the first touches memory and writes files for the first time
    const std::array<double, 4> seconds = {pass({true, true}), pass({true, false}), pass({false, true}), stay()};
    if (repeat == 0) continue;
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  const double longest = std::max(best[1], best[2]);
  fmt::print(
      R"({{"bench":"bucketed step","tier":"{}","elements":{},"bucket":{},"depth":{},"seconds":{:.4f},)"
      R"("transfers_alone":{:.4f},"adamw_alone":{:.4f},"adamw_in_one_pass":{:.4f},"over_longest_part":{:.2f},)"
      R"("tier_gb_per_second":{:.1f}}})"
      "\n",
      c.tier, n, c.bucket_elements, c.depth, best[0], best[1], best[2], best[3], best[0] / longest,
      2.0 * static_cast<double>(layout.region_bytes()) / best[0] * 1e-9);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 2) fail(ErrorCode::usage, "usage: bucket_bench DIR[,DIR…] [elements [repeats]]");
  std::vector<std::filesystem::path> directories;
  std::istringstream list(argv[1]);
  for (std::string directory; std::getline(list, directory, ',');) directories.emplace_back(directory);
  const std::size_t elements = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{32} << 20;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  for (const char* tier : {"host", "nvme"})
    for (const std::size_t bucket : {elements / 64, elements / 16, elements / 4})
      for (const std::size_t depth : {1, 2, 3, 4}) run_case({tier, bucket, depth}, directories, elements, repeats);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "bucket_bench: {}\n", error.what());
    return 1;
  }
}
