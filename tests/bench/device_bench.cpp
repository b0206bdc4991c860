// Overhead of the cpu device: an empty kernel on the pool, work on a stream, a stream that waits for another.
//
//   device_bench [threads]      one JSON line per case; the median of the rounds
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
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

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  bench_pool(threads);
  bench_streams(threads);
}
