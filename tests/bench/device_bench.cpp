// Overhead of the cpu device: an empty kernel on the pool, work on a stream, a stream that waits for another. Then the
// memory bandwidth of the elementwise kernels.
//
//   device_bench [threads]      one JSON line per case; the median of the rounds
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/bench/bench.hpp"

#include <thread>

using namespace ranvier::bench;
using namespace ranvier::runtime;

namespace {

/// Seconds per call: median of 11 rounds of `times` calls.
double seconds_per_call(int times, const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < 12; ++round) {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < times; ++i) call();
    });
    if (round > 0) rounds.push_back(seconds / times);
  }
  return median(std::move(rounds));
}

void report_cost(const char* what, int threads, double seconds) {
  print_case(R"("bench":"{}","threads":{},"microseconds":{:.3f})", what, threads, seconds * 1e6);
}

void bench_pool(int threads) {
  ComputePool pool(threads);
  const std::function<void(int, int)> nothing = [](int, int) {};
  report_cost("empty kernel, hot", threads, seconds_per_call(10000, [&] { pool.run(nothing); }));
  const double pause = seconds_per_call(100, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  report_cost("empty kernel after 1 ms of rest", threads,
              seconds_per_call(100, [&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                pool.run(nothing);
              }) - pause);
}

void bench_streams(int threads) {
  const auto device = make_cpu_device({.threads = threads});
  const auto stream = device->make_stream("first", StreamWidth::whole);
  const auto other = device->make_stream("second", StreamWidth::one);
  const auto event = device->make_event();
  report_cost("launch of 1000 and synchronize, each", threads, seconds_per_call(10, [&] {
                                                                 for (int i = 0; i < 1000; ++i)
                                                                   stream->launch([](ComputePool&) {});
                                                                 stream->synchronize();
                                                               }) / 1000);
  report_cost("launch and synchronize", threads, seconds_per_call(1000, [&] {
                stream->launch([](ComputePool&) {});
                stream->synchronize();
              }));
  report_cost("launch, record, wait on another stream, synchronize", threads, seconds_per_call(1000, [&] {
                stream->launch([](ComputePool&) {});
                event->record(*stream);
                other->wait(*event);
                other->synchronize();
              }));
}

void bench_kernels(int threads) {
  constexpr std::size_t n = std::size_t{8} << 20;
  const auto device = make_cpu_device({.threads = threads});
  const auto stream = device->make_stream("kernels", StreamWidth::whole);
  MemoryPlan plan;
  const MemoryId from_id = plan.add({MemoryKind::workspace, MemorySpace::device, "from", n * sizeof(float), 1});
  const MemoryId to_id = plan.add({MemoryKind::workspace, MemorySpace::device, "to", n * sizeof(float), 1});
  const Arena arena(*device, plan);
  std::byte* from = arena.slot(from_id);
  std::byte* to = arena.slot(to_id);
  for (std::size_t i = 0; i < n; ++i) arena.slot_as<float>(from_id)[i] = static_cast<float>(i % 1000) * 1e-3f;

  const auto report = [&](const char* kernel, DType dtype, double bytes_per_element,
                          const std::function<void()>& call) {
    const double seconds = seconds_per_call(2, [&] {
      call();
      stream->synchronize();
    });
    print_case(R"("bench":"{}","dtype":"{}","threads":{},"seconds":{:.6f},"gb_per_second":{:.1f})", kernel,
               to_string(dtype), threads, seconds, bytes_per_element * static_cast<double>(n) / seconds * 1e-9);
  };
  report("copy", DType::f32, 8, [&] { copy(*stream, to, from, n * sizeof(float)); });
  std::vector<float> sums((n + squares_block_elements - 1) / squares_block_elements);
  double total = 0;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto bytes = static_cast<double>(size_of(dtype));
    report("cast from fp32", dtype, 4 + bytes, [&] { cast(*stream, to, dtype, from, DType::f32, n); });
    std::swap(from, to);  // of this dtype now
    report("scale", dtype, 2 * bytes, [&] { scale(*stream, from, dtype, 1.0f, n); });
    report("cast to fp32", dtype, 4 + bytes, [&] { cast(*stream, to, DType::f32, from, dtype, n); });
    report("add", dtype, 3 * bytes, [&] { add(*stream, to, from, dtype, n); });
    report("sum of squares", dtype, bytes, [&] {
      sums_of_squares(*stream, sums.data(), from, dtype, n);
      sum(*stream, &total, sums.data(), sums.size());
    });
    cast(*stream, to, DType::f32, from, dtype, n);
    stream->synchronize();
    std::swap(from, to);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  bench_pool(threads);
  bench_streams(threads);
  bench_kernels(threads);
}
