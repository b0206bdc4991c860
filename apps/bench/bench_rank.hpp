// One rank of a measurement: loop, transport and executor as in training, and times that are equal on all ranks. Loop
// thread only.
#pragma once

#include "collectives/communicators/executor.hpp"
#include "runtime/device/device.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_collectives.hpp"
#include "runtime/transport/mpi_transport.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

namespace ranvier::apps {

class BenchRank {
 public:
  /// Prints the error and ends the job; does not return.
  using End = std::function<void(const std::exception& error)>;

  /// Collective: every rank creates one. The session outlives it. `end` is called on an error while messages are in
  /// flight, whose buffers must still exist.
  BenchRank(runtime::MpiSession& session, std::unique_ptr<runtime::Device> device, End end);

  /// Zeroed memory of the kind that holds gradients in training: host or GPU.
  [[nodiscard]] runtime::Buffer allocate(std::size_t bytes);

  /// Starts an operation; calls `done` on the loop when it completes.
  using Work = std::function<void(runtime::Handler done)>;
  /// Starts `work` on all ranks after a barrier, and waits. Returns the seconds of the slowest rank, equal on all
  /// ranks.
  double slowest_seconds(const Work& work);
  /// Median of slowest_seconds() over at most `max_rounds` rounds; starts no further round after `seconds`.
  double median_seconds(const Work& work, int max_rounds, double seconds);
  /// Seconds since construction, maximum over ranks; equal on all ranks.
  [[nodiscard]] double elapsed_seconds();

  [[nodiscard]] runtime::MpiSession& session() noexcept { return session_; }
  [[nodiscard]] runtime::EventLoop& loop() noexcept { return loop_; }
  [[nodiscard]] runtime::Device& device() noexcept { return *device_; }
  /// Transport as in training: direct, or staged through pinned memory.
  [[nodiscard]] runtime::Transport& transport() noexcept {
    return staged_ ? static_cast<runtime::Transport&>(*staged_) : transport_;
  }
  [[nodiscard]] collectives::Executor& executor() noexcept { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// Maximum over ranks, in seconds.
  double slowest(Clock::duration duration);

  const Clock::time_point made_ = Clock::now();
  runtime::MpiSession& session_;
  End end_;
  runtime::AsioLoop loop_;  // outlives the threads that post to it
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> additions_;
  runtime::MpiTransport transport_;
  std::optional<runtime::StagedTransport> staged_;
  runtime::MpiCollectives barrier_;  ///< all-reduce of one number
  double barrier_value_ = 0;
  collectives::Executor executor_;
};

}  // namespace ranvier::apps
