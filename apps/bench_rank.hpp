// One process of a measurement between ranks: a loop, a transport and an executor as a training rank has them, and
// a clock that all ranks read alike. Loop thread only.
#pragma once

#include "collectives/executor.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/device.hpp"
#include "runtime/mpi_transport.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace ranvier::apps {

class BenchRank {
 public:
  /// All ranks of the job make one. The session outlives it.
  explicit BenchRank(runtime::MpiSession& session);

  /// `work` starts something and calls what it is given on the loop when that is done.
  using Work = std::function<void(runtime::Handler done)>;
  /// Starts `work` on all ranks at the same time, and waits. The seconds of the slowest rank, equal on all.
  double slowest_seconds(const Work& work);
  /// Since this was made, of the rank where it is longest; equal on all.
  [[nodiscard]] double elapsed_seconds();

  [[nodiscard]] runtime::MpiSession& session() noexcept { return session_; }
  [[nodiscard]] runtime::Device& device() noexcept { return *device_; }
  [[nodiscard]] runtime::EventLoop& loop() noexcept { return loop_; }
  [[nodiscard]] runtime::Transport& transport() noexcept { return transport_; }
  [[nodiscard]] collectives::Executor& executor() noexcept { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// What the slowest rank says.
  double slowest(Clock::duration duration);

  const Clock::time_point made_ = Clock::now();
  runtime::MpiSession& session_;
  runtime::AsioLoop loop_;  // outlives the threads that post to it
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> additions_;
  runtime::MpiTransport transport_;
  collectives::Executor executor_;
  collectives::Executor::Operands barrier_;  ///< a sum of one number
  double barrier_value_ = 0;
  std::unique_ptr<double[]> barrier_staging_;
};

}  // namespace ranvier::apps
