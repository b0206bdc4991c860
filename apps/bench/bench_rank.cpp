#include "apps/bench/bench_rank.hpp"

#include "runtime/base/arithmetic.hpp"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

std::vector<int> all_ranks(const runtime::MpiSession& session) {
  std::vector<int> ranks(session.ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool needs_staging(const runtime::Device& device) {
  return device.kind() == runtime::DeviceKind::cuda && !runtime::mpi_reaches_gpus();
}

}  // namespace

BenchRank::BenchRank(runtime::MpiSession& session, std::unique_ptr<runtime::Device> device, End end)
    : session_(session),
      end_(std::move(end)),
      device_(std::move(device)),
      additions_(device_->make_stream("additions", runtime::StreamWidth::one)),
      transport_(session, loop_),
      staged_(needs_staging(*device_)
                  ? std::optional<runtime::StagedTransport>(std::in_place, loop_, transport_, *device_)
                  : std::nullopt),
      barrier_(session, loop_, all_ranks(session)),
      executor_(loop_, transport(), *additions_) {
  device_->on_failure([this](std::exception_ptr error) { loop_.stop(std::move(error)); });
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
  barrier_.all_reduce(reinterpret_cast<std::byte*>(&barrier_value_), 1, runtime::DType::f64, [&] {
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
