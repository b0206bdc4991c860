// References that all objects of a run share on one rank; the referenced objects outlive the run.
#pragma once

#include "apps/job/job.hpp"
#include "apps/job/stop_signals.hpp"
#include "apps/options/train_options.hpp"
#include "runtime/liveness/thread_watchdog.hpp"
#include "runtime/liveness/time_limits.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace ranvier::apps {

class LiveRun;

[[nodiscard]] inline runtime::Duration timeout_of(const TrainOptions& options) {
  return std::chrono::duration_cast<runtime::Duration>(std::chrono::duration<double>(options.run.timeout_seconds));
}

struct RankRun {
  runtime::MpiSession& session;
  const TrainOptions& options;
  const Job& job;
  runtime::AsioLoop& loop;
  runtime::MpiTransport& transport;
  runtime::ThreadWatchdog& watch;  ///< watches this thread
  StopSignals* signals = nullptr;  ///< null: dry run
  LiveRun* live = nullptr;         ///< null: no --serve, or not rank 0
  /// Requested outputs that could not be written, with the reason; filled on rank 0.
  std::vector<std::string>& missing;
  std::string id;  ///< 16 hexadecimal digits; the same on all ranks, different in each run

  /// Whether this rank prints: rank 0 only.
  [[nodiscard]] bool speaks() const noexcept { return session.rank() == 0; }
  [[nodiscard]] runtime::Duration timeout() const { return timeout_of(options); }
};

/// "rank 1 (stage 1, row 0)".
[[nodiscard]] inline std::string describe_rank(const TrainOptions& options, int rank) {
  const auto position = runtime::Grid(options.trainer.grid, options.ranks).position(rank);
  return fmt::format("rank {} (stage {}, row {})", rank, position.stage, position.row);
}

}  // namespace ranvier::apps
