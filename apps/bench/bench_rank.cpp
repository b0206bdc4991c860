#include "apps/bench/bench_rank.hpp"

#include "collectives/plans/recursive.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/cuda_build.hpp"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

// Not a channel of the measured messages.
constexpr auto barrier_channel = runtime::Channel::summary;

bool needs_staging(const runtime::Device& device) {
  return device.kind() == runtime::DeviceKind::cuda && !runtime::mpi_reaches_gpus();
}

}  // namespace

std::unique_ptr<runtime::Device> make_bench_device(const runtime::MpiSession& session, DeviceFlag device,
                                                   std::optional<int> gpu, int threads) {
  const bool on_gpu = device == DeviceFlag::cuda;
  return make_device(device, on_gpu ? gpu_of_rank(session, gpu) : runtime::CudaDeviceOptions(),
                     {.threads = threads});
}

BenchRank::BenchRank(runtime::MpiSession& session, std::unique_ptr<runtime::Device> device, End end)
    : session_(session),
      end_(std::move(end)),
      host_(runtime::make_cpu_device({})),
      device_(std::move(device)),
      host_additions_(host_->make_stream("barrier", runtime::StreamWidth::one)),
      additions_(device_->make_stream("additions", runtime::StreamWidth::one)),
      transport_(session, loop_),
      staged_(needs_staging(*device_)
                  ? std::optional<runtime::StagedTransport>(std::in_place, loop_, transport_, *device_)
                  : std::nullopt),
      barrier_executor_(loop_, transport_, *host_additions_),
      executor_(loop_, transport(), *additions_) {
  for (runtime::Device* each : {host_.get(), device_.get()})
    each->on_failure([this](std::exception_ptr error) { loop_.stop(std::move(error)); });
  const collectives::Plan plan = collectives::tree_all_reduce(session.ranks(), 1);
  const auto schedules = std::make_shared<const std::vector<collectives::RankSchedule>>(
      1, collectives::schedule_of(plan, session.rank()));
  barrier_ = {.parts = {{reinterpret_cast<std::byte*>(&barrier_value_), schedules}},
              .members = std::vector<int>(session.ranks()),
              .me = session.rank(),
              .dtype = runtime::DType::f64,
              .channel = barrier_channel,
              .depth = 1};
  std::iota(barrier_.members.begin(), barrier_.members.end(), 0);
  barrier_staging_ =
      std::make_unique<double[]>(collectives::Executor::staging_bytes(barrier_) / sizeof(double) + 1);
  barrier_.staging = reinterpret_cast<std::byte*>(barrier_staging_.get());
}

runtime::Buffer BenchRank::allocate(std::size_t bytes) {
  const bool gpu = device_->kind() == runtime::DeviceKind::cuda;
  runtime::Buffer buffer =
      device_->allocate(bytes, gpu ? runtime::MemorySpace::device : runtime::MemorySpace::host);
  if (!gpu) std::memset(buffer.data(), 0, bytes);  // touches pages before measurements
  return buffer;
}

double BenchRank::slowest(Clock::duration duration) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(duration);
  return 1e-9 * static_cast<double>(session_.largest(nanoseconds.count()));
}

double BenchRank::slowest_seconds(const Work& work) {
  Clock::time_point begin, end;
  barrier_executor_.run(barrier_, [&] {
    begin = Clock::now();
    work([&] {
      end = Clock::now();
      loop_.stop();
    });
  });
  try {
    loop_.run();
  } catch (const std::exception& error) {
    end_(error);
    throw;
  }
  return slowest(end - begin);
}

double BenchRank::median_seconds(const Work& work, int max_rounds, double seconds) {
  std::vector<double> rounds;
  double spent = 0;
  while (rounds.empty() || (std::ssize(rounds) < max_rounds && spent < seconds)) {
    rounds.push_back(slowest_seconds(work));
    spent += rounds.back();
  }
  return runtime::median(rounds);
}

double BenchRank::elapsed_seconds() { return slowest(Clock::now() - made_); }

}  // namespace ranvier::apps
