// What every part of a run has in common on one rank. Plain references; what they refer to outlives the parts.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"
#include "apps/train/stop_signals.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/startup_watchdog.hpp"
#include "runtime/mpi_transport.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace ranvier::apps {

class LiveRun;

/// Timeouts that a disk that is written to, or a terminal, may stand still.
inline constexpr int output_patience = 10;

struct RankRun {
  runtime::MpiSession& session;
  const TrainOptions& options;
  const Job& job;
  runtime::AsioLoop& loop;
  runtime::MpiTransport& transport;
  runtime::StartupWatchdog& watch;  ///< of what is done outside of the loop
  StopSignals* signals = nullptr;   ///< null: nothing is trained
  LiveRun* live = nullptr;          ///< null: nobody watches it (--serve), or this is not rank 0
  /// Outputs that the flags ask for and that could not be written, with the reason; filled on rank 0.
  std::vector<std::string>& missing;
  std::string id;  ///< 16 hexadecimal digits, the same on all ranks and others in every run

  /// Whether this rank tells people what happens.
  [[nodiscard]] bool speaks() const noexcept { return session.rank() == 0; }
  [[nodiscard]] runtime::Duration timeout() const {
    return std::chrono::duration_cast<runtime::Duration>(
        std::chrono::duration<double>(options.run.timeout_seconds));
  }
};

/// "rank 1 (stage 1, row 0)".
[[nodiscard]] inline std::string describe_rank(const TrainOptions& options, int rank) {
  const auto position = runtime::Grid(options.trainer.grid, options.ranks).position(rank);
  return fmt::format("rank {} (stage {}, row {})", rank, position.stage, position.row);
}

}  // namespace ranvier::apps
