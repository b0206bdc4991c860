// A run as those see it who watch it from outside while it trains: what it told so far, what its ranks do, as texts for
// a browser, a script or Prometheus. Any thread; those that read may be slow, and the loop never waits for them, as
// long as it tells by way of another thread.
#pragma once

#include "apps/view/history.hpp"
#include "apps/view/rank_summary.hpp"
#include "runtime/grid.hpp"
#include "runtime/options.hpp"

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

  struct Stage {
    std::string layers;  ///< "embedding … h.1"
    using Bytes = std::vector<std::pair<std::string, std::size_t>>;
    /// What a rank plans to take, by kind: of its device's memory, and of pinned, host memory and files where it needs
    /// them. It takes all kinds of a place at once, before the first step.
    std::vector<std::pair<std::string, Bytes>> planned_bytes;
  };
  struct About {
    std::string model;           ///< "gpt 4 × 256, 4 heads: 3.26M parameters"
    std::string item = "token";  ///< what throughput counts
    std::int64_t steps = 0;
    runtime::GridShape grid;
    std::vector<Stage> stages;
    std::vector<runtime::ResolvedOption> options;
  };

  /// What a run does beside steps, and how it ended.
  struct Phase {
    std::int64_t number = 0;  ///< grows with each change
    std::string name = "starting";
    std::string message;  ///< why it is that one: "SIGUSR1 at rank 0"; empty: as planned
  };

  /// `changed` is called after each change of the phase, on the thread that made it.
  explicit LiveRun(std::function<void()> changed = [] {}) : changed_(std::move(changed)) {}

  /// A run begins, or one that goes on after it went back to a checkpoint: what was told before stays.
  void begin(About about);
  /// "training", "saving".
  void set_phase(std::string name);
  /// It was asked to end before it is done; `expected`: when it will have.
  void stopping(const std::string& cause, const std::string& expected);
  // Nothing comes after these but another begin(), or what is certain after what is not.
  /// As planned, or after it was asked to.
  void end(bool stopped);
  /// `certain`: a rank has said so.
  void fail(std::string message, bool certain = true);
  /// Ranks of this machine whose processes were there when their state was heard last, and are not any more.
  [[nodiscard]] std::vector<int> lost_ranks() const;
  /// A record, as --metrics has it.
  void take(std::string_view record);
  void take(RankSnapshot snapshot);

  /// Whether somebody has asked for what ranks do lately, so that it is worth asking them.
  [[nodiscard]] bool ranks_wanted(Clock::time_point now = Clock::now()) const;

  [[nodiscard]] Phase phase() const;

  // JSON objects.
  /// The phase, unless it is still the one of this number.
  [[nodiscard]] Text phase_after(std::int64_t number) const;
  [[nodiscard]] Text about() const;   ///< what stays as it is
  [[nodiscard]] Text status() const;  ///< where it is: made at most four times a second
  /// Values of steps `first` to `last`, 0: all, as at most `points` points, at most 1500.
  [[nodiscard]] Text series(std::int64_t first, std::int64_t last, std::size_t points) const;
  /// What each rank does, and all of them in the last step.
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
  /// The one that was made lately, or another.
  [[nodiscard]] Text lately(Made& made, std::string (LiveRun::*make)() const) const;

  enum class Over { no, perhaps, yes };
  void change(std::string name, std::string message, Over over = Over::no);

  std::function<void()> changed_;
  mutable std::mutex mutex_;
  About about_;
  Text about_text_ = std::make_shared<const std::string>("{}");
  Phase phase_;
  Over over_ = Over::no;
  std::string cause_;           // of its end before it is done
  std::vector<int> processes_;  // by rank; 0: not known
  History history_;
  RankSnapshot ranks_, ranks_before_;
  Clock::time_point began_ = Clock::now();
  mutable Made status_, ranks_text_, prometheus_;
  mutable std::atomic<std::int64_t> wanted_ms_{
      -1'000'000};  // when ranks were asked for, since the clock's beginning
};

}  // namespace ranvier::apps
