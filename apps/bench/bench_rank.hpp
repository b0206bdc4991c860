// One process of a measurement between ranks: a loop, a transport and an executor as a training rank has them, and
// a clock that all ranks read alike. Loop thread only.
#pragma once

#include "apps/program/device_flag.hpp"
#include "collectives/executor.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/device.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/staged_transport.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

namespace ranvier::apps {

/// Whose memory is measured; a CPU's computes with so many threads. Throws what make_cuda_device() does.
[[nodiscard]] std::unique_ptr<runtime::Device> make_bench_device(const runtime::MpiSession& session,
                                                                 DeviceFlag device, std::optional<int> gpu,
                                                                 int threads = 1);

class BenchRank {
 public:
  /// Says what failed and ends the job; does not return.
  using End = std::function<void(const std::exception& error)>;

  /// All ranks of the job make one. The session outlives it. `end` is called where something fails while messages
  /// are under way: what they are at work on must not be freed before.
  BenchRank(runtime::MpiSession& session, std::unique_ptr<runtime::Device> device, End end);

  /// Zeros where training has its gradients: the host's memory, or a GPU's.
  [[nodiscard]] runtime::Buffer allocate(std::size_t bytes);

  /// `work` starts something and calls what it is given on the loop when that is done.
  using Work = std::function<void(runtime::Handler done)>;
  /// Starts `work` on all ranks at the same time, and waits. The seconds of the slowest rank, equal on all.
  double slowest_seconds(const Work& work);
  /// Since this was made, of the rank where it is longest; equal on all.
  [[nodiscard]] double elapsed_seconds();

  [[nodiscard]] runtime::MpiSession& session() noexcept { return session_; }
  [[nodiscard]] runtime::EventLoop& loop() noexcept { return loop_; }
  [[nodiscard]] runtime::Device& device() noexcept { return *device_; }
  /// What training sends with: straight, or by way of pinned memory.
  [[nodiscard]] runtime::Transport& transport() noexcept {
    return staged_ ? static_cast<runtime::Transport&>(*staged_) : transport_;
  }
  [[nodiscard]] collectives::Executor& executor() noexcept { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// What the slowest rank says.
  double slowest(Clock::duration duration);

  const Clock::time_point made_ = Clock::now();
  runtime::MpiSession& session_;
  End end_;
  runtime::AsioLoop loop_;                          // outlives the threads that post to it
  std::unique_ptr<runtime::Device> host_, device_;  ///< of the barrier, and of what is measured
  std::unique_ptr<runtime::Stream> host_additions_, additions_;
  runtime::MpiTransport transport_;
  std::optional<runtime::StagedTransport> staged_;
  collectives::Executor barrier_executor_, executor_;
  collectives::Executor::Operands barrier_;  ///< a sum of one number
  double barrier_value_ = 0;
  std::unique_ptr<double[]> barrier_staging_;
};

}  // namespace ranvier::apps
