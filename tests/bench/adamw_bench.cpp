// Rate of AdamW as a share of memory bandwidth. The reference is a plain pass in place over the same arrays, measured
// in turns. It reads 16 bytes per element and writes 12, like a step with fp32 gradients and no working copy.
//
//   adamw_bench [elements [repeats]]      one JSON line per case; seconds are the best of the repeats
#include "runtime/device/arena.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/bench/bench.hpp"

#include <limits>

using namespace ranvier::bench;
using namespace ranvier::runtime;

namespace {

void plain_pass(float* __restrict w, float* __restrict m, float* __restrict v, const float* __restrict g,
                std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    w[i] += g[i];
    m[i] += g[i];
    v[i] += g[i];
  }
}

void run_cases(int threads, std::size_t n, int repeats) {
  const auto device = make_cpu_device({.threads = threads});
  const auto stream = device->make_stream("bench", StreamWidth::whole);
  MemoryPlan plan;
  const auto add = [&](const char* name) {
    return plan.add({MemoryKind::optimizer, MemorySpace::device, name, n * sizeof(float), 1});
  };
  const MemoryId w = add("weights"), m = add("m"), v = add("v"), gradient = add("gradient"), copy = add("copy");
  const Arena arena(*device, plan);
  AdamWArrays arrays{.weights = arena.slot_as<float>(w),
                     .m = arena.slot_as<float>(m),
                     .v = arena.slot_as<float>(v),
                     .gradient = arena.slot(gradient)};

  // Unwritten pages would all map to one page of zeros, in the cache. Small values fit all types.
  const auto fill = [&](MemoryId id, float scale) {
    for (std::size_t i = 0; i < n; ++i) arena.slot_as<float>(id)[i] = scale * static_cast<float>(1 + i % 1000);
  };
  fill(gradient, 1e-3f);
  fill(copy, 1e-3f);

  const auto plain = [&] {
    stream->launch([&](ComputePool& pool) {
      pool.run([&](int thread, int of) {
        const Share share = share_of(n, thread, of, 1024);
        plain_pass(arrays.weights + share.begin, arrays.m + share.begin, arrays.v + share.begin,
                   arena.slot_as<float>(gradient) + share.begin, share.end - share.begin);
      });
    });
    stream->synchronize();
  };

  struct Case {
    DType gradient;
    DType working;
    bool copies;
  };
  for (const Case& c : {Case{DType::f32, DType::f32, false}, Case{DType::bf16, DType::f32, false},
                        Case{DType::f32, DType::bf16, true}, Case{DType::bf16, DType::bf16, true},
                        Case{DType::f16, DType::f16, true}}) {
    arrays.gradient_dtype = c.gradient;
    arrays.working_dtype = c.working;
    arrays.working = c.copies ? arena.slot(copy) : nullptr;
    AdamWOptions options{.learning_rate = 1e-3};
    const std::vector<DecaySegment> segments = {{0, n / 2, true}, {n / 2, n, false}};
    for (const MemoryId id : {w, m, v}) fill(id, 1e-4f);
    fill(copy, 1e-3f);
    cast(*stream, arena.slot(gradient), c.gradient, arena.slot(copy), DType::f32, n);
    const auto step = [&] {
      adamw(*stream, arrays, segments, options);
      stream->synchronize();
    };
    step();
    plain();
    double seconds = std::numeric_limits<double>::infinity(), plain_seconds = seconds;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      seconds = std::min(seconds, seconds_of(step));
      plain_seconds = std::min(plain_seconds, seconds_of(plain));
    }
    const double bytes = 24.0 + static_cast<double>(size_of(c.gradient)) +
                         (c.copies ? static_cast<double>(size_of(c.working)) : 0.0);
    const double rate = bytes * static_cast<double>(n) / seconds;
    const double plain_rate = 28.0 * static_cast<double>(n) / plain_seconds;
    print_case(R"("bench":"adamw","threads":{},"elements":{},"gradient":"{}","copy":"{}","seconds":{:.6f},)"
               R"("gb_per_second":{:.1f},"plain_pass_gb_per_second":{:.1f},"of_plain_pass":{:.3f})",
               threads, n, to_string(c.gradient), c.copies ? to_string(c.working) : "none", seconds, rate * 1e-9,
               plain_rate * 1e-9, rate / plain_rate);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t elements = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{8} << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 20;
  for (const int threads : {1, 2}) run_cases(threads, elements, repeats);
}
