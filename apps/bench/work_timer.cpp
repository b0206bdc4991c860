#include "apps/bench/work_timer.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/simulation/phantom_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace ranvier::apps {

namespace {

constexpr std::size_t pattern_elements = 1 << 18;
constexpr double round_seconds = 4e-3;  // far longer than the detection of completed work
constexpr double max_in_a_round = 64;   // values halved by each repetition must stay normal numbers
constexpr std::size_t max_rounds = 9;

}  // namespace

WorkTimer::WorkTimer(BenchRank& rank, runtime::Device& device, std::size_t memory_bytes)
    : rank_(rank), apart_(device.apart()) {
  const auto space = apart_ ? runtime::MemorySpace::device : runtime::MemorySpace::host;
  memory_ = device.allocate(memory_bytes, space);
  pattern_ = device.allocate(pattern_elements * sizeof(float), space);
  numbers_ = device.allocate(pattern_elements * sizeof(float), runtime::MemorySpace::pinned);
}

void WorkTimer::fill_with(runtime::StreamView stream, runtime::DType dtype, bool both_signs) {
  stream.synchronize();
  auto* const numbers = reinterpret_cast<float*>(numbers_.data());
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < pattern_elements; ++i) {
    state = state * 1664525u + 1013904223u;
    const float number = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36f;
    numbers[i] = both_signs ? number : 0.01f + std::abs(number);
  }
  const std::size_t per_float = sizeof(float) / runtime::size_of(dtype);
  for (std::size_t part = 0; part < per_float; ++part) {
    std::byte* const to = pattern_.data() + part * pattern_elements * runtime::size_of(dtype);
    runtime::cast(stream, to, dtype, numbers, runtime::DType::f32, pattern_elements);
  }
  stream.synchronize();
}

void WorkTimer::fill(runtime::StreamView stream, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += pattern_.bytes()) {
    runtime::copy(stream, memory_.data() + begin, pattern_.data(), std::min(pattern_.bytes(), bytes - begin));
  }
}

double WorkTimer::seconds_of(runtime::StreamView stream, const ProfiledWork& work, Caches caches,
                             double budget_seconds) {
  expect(work.bytes > 0 && work.bytes <= memory_.bytes(), "work on {} bytes in memory of {}", work.bytes,
         memory_.bytes());
  const std::size_t places = caches == Caches::warm ? 1 : memory_.bytes() / work.bytes;
  std::size_t place = 0;
  const auto round = [&](std::size_t times) {
    fill(stream, work.bytes * std::min(places, times));
    stream.synchronize();
    const runtime::SteadyClock clock;
    for (std::size_t i = 0; i < times; ++i) work.queue(stream, memory_.data() + place++ % places * work.bytes);
    stream.synchronize();
    place = 0;
    return runtime::seconds(clock.now()) / static_cast<double>(times);
  };
  rank_.session().barrier();
  if (waits_) return agree(-1);
  const runtime::SteadyClock clock;
  round(1);  // creates and loads kernels
  const auto times = static_cast<std::size_t>(std::clamp(std::ceil(round_seconds / round(1)), 1.0, max_in_a_round));
  std::vector<double> rounds;
  while (rounds.empty() || (rounds.size() < max_rounds && runtime::seconds(clock.now()) < budget_seconds))
    rounds.push_back(round(times));
  return agree(runtime::median(rounds));
}

std::vector<runtime::WorkCost> WorkTimer::costs(runtime::StreamView stream, const ProfiledWork& work) {
  const runtime::Device& device = stream.device();
  const runtime::RecordedDevice recorded{
      .apart = device.apart(), .threads = device.threads(), .host_reaches = [&](const void* address) {
        return device.host_reaches(address);
      }};
  return runtime::costs_of(recorded, [&](runtime::StreamView costs) { work.queue(costs, memory_.data()); });
}

double WorkTimer::agree(double seconds) {
  constexpr double per_second = 1e12;
  std::vector<double> all;
  for (const long long each : rank_.session().all(std::llround(seconds * per_second))) {
    if (each >= 0) all.push_back(static_cast<double>(each) / per_second);
  }
  return runtime::median(all);
}

runtime::WorkRate fit_rate(const TimedWork& small, const TimedWork& large) {
  const auto sum_of = [](const TimedWork& work, double runtime::WorkCost::* field) {
    return std::accumulate(work.costs.begin(), work.costs.end(), 0.0,
                           [&](double sum, const runtime::WorkCost& cost) { return sum + cost.*field; });
  };
  const bool has_flops = sum_of(large, &runtime::WorkCost::flops) > 0;
  const auto field = has_flops ? &runtime::WorkCost::flops : &runtime::WorkCost::bytes;
  const double small_amount = sum_of(small, field), large_amount = sum_of(large, field);
  const auto small_pieces = static_cast<double>(small.costs.size());
  const auto large_pieces = static_cast<double>(large.costs.size());

  // Two equations: seconds = pieces · launch + amount / rate.
  const double determinant = large_amount * small_pieces - small_amount * large_pieces;
  double launch = (large_amount * small.seconds - small_amount * large.seconds) / determinant;
  // The clamp handles disturbed measurements, in which the large work took hardly longer.
  launch = determinant > 0 ? std::clamp(launch, 0.0, 0.5 * large.seconds / large_pieces) : 0.0;
  const double rate = large_amount / (large.seconds - large_pieces * launch);
  runtime::WorkRate result{.launch_seconds = launch};
  (has_flops ? result.flops_per_second : result.bytes_per_second) = rate;
  return result;
}

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  return std::round(value / unit) * unit;
}

}  // namespace ranvier::apps
