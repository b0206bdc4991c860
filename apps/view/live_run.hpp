// State of a running job for the live page: records so far and activity of ranks, as JSON and for Prometheus. Callable
// from any thread. Calls may block on a mutex that slow readers hold, so the loop must report through another thread.
#pragma once

#include "apps/program/options.hpp"
#include "apps/view/history.hpp"
#include "apps/view/rank_summary.hpp"
#include "runtime/base/grid.hpp"

#include <boost/json/array.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

class LiveRun {
 public:
  using Clock = std::chrono::steady_clock;
  using Text = std::shared_ptr<const std::string>;

  struct About {
    std::string model;           ///< "gpt 4 × 256, 4 heads: 3.26M parameters"
    std::string item = "token";  ///< unit of throughput
    std::int64_t steps = 0;
    runtime::GridShape grid;
    /// By stage: layers ("embedding … h.1"), and planned_bytes per rank by memory space (device, pinned, host, nvme)
    /// and kind. A space is allocated at once, before the first step.
    boost::json::array stages = {};
    std::vector<ResolvedOption> options;
  };

  /// Phase of a run, including its outcome.
  struct Phase {
    std::int64_t number = 0;  ///< grows with each change
    std::string name = "starting";
    std::string message;  ///< cause: "SIGUSR1 at rank 0"; empty: as planned
  };

  /// `changed` is called after each change of the phase, on the thread that made it.
  explicit LiveRun(std::function<void()> changed = [] {}) : changed_(std::move(changed)) {}

  /// Starts a run, or restarts it after a rollback; earlier records stay.
  void begin(About about);
  /// "training", "saving".
  void set_phase(std::string name);
  /// The run was asked to stop early; `expected`: text about when it will have stopped.
  void stopping(const std::string& cause, const std::string& expected);
  // Final phases; only begin() follows, or a certain outcome after an uncertain one.
  /// The run finished, or stopped early on request.
  void end(bool stopped);
  /// The run failed. `certain`: a rank has reported it.
  void fail(std::string message, bool certain = true);
  /// Ranks of this machine whose processes have ended since their last report.
  [[nodiscard]] std::vector<int> lost_ranks() const;
  /// Adds a line of --metrics.
  void take(std::string_view record);
  void take(RankSnapshot snapshot);

  /// Returns whether a client has requested rank data recently; otherwise ranks need not report.
  [[nodiscard]] bool ranks_wanted(Clock::time_point now = Clock::now()) const;

  [[nodiscard]] Phase phase() const;

  // JSON objects.
  /// The phase; null while its number is still `number`.
  [[nodiscard]] Text phase_after(std::int64_t number) const;
  [[nodiscard]] Text about() const;   ///< constant data of the run
  [[nodiscard]] Text status() const;  ///< current data; updated at most four times per second
  /// Values of steps `first` to `last` (0: all) in at most `points` points, never more than 1500.
  [[nodiscard]] Text series(std::int64_t first, std::int64_t last, std::size_t points) const;
  /// Activity of each rank, and all spans of the last step.
  [[nodiscard]] Text ranks() const;
  /// Prometheus' text format, version 0.0.4.
  [[nodiscard]] Text prometheus() const;

 private:
  struct Made {
    Text text;
    Clock::time_point at;
  };
  [[nodiscard]] std::string make_status() const;
  [[nodiscard]] std::string make_ranks() const;
  [[nodiscard]] std::string make_prometheus() const;
  /// Returns the cached text, or a new one if it is older than 250 ms.
  [[nodiscard]] Text lately(Made& made, std::string (LiveRun::*make)() const) const;

  enum class Over { no, perhaps, yes };
  void change(std::string name, std::string message, Over over = Over::no);

  std::function<void()> changed_;
  mutable std::mutex mutex_;
  About about_;
  Text about_text_ = std::make_shared<const std::string>("{}");
  Phase phase_;
  Over over_ = Over::no;
  std::string cause_;           // cause of an early stop
  std::vector<int> processes_;  // process ids by rank; 0: unknown
  History history_;
  RankSnapshot ranks_, ranks_before_;
  Clock::time_point began_ = Clock::now();
  mutable Made status_, ranks_text_, prometheus_;
  mutable std::atomic<std::int64_t> wanted_ms_{-1'000'000};  // time of the last request for rank data, on Clock
};

}  // namespace ranvier::apps
