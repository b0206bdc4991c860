// Prints a run's progress on rank 0: a line per step, a progress bar on a terminal, and one JSON object per step in the
// metrics file. Writing may block, so it runs on its own stream, not on the loop; callers pass the loop time of each
// event. One thread at a time.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/rank/recent_median.hpp"
#include "actors/rank/trainer.hpp"
#include "actors/replicas/replica_check.hpp"
#include "actors/watch/stragglers.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/files/record_file.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::actors {

/// Peak rates for MFU: FLOP per second of all devices together, in the precision of the run.
struct PeakRates {
  double measured = 0;  ///< rate of large matrix multiplications before training; 0: unknown
  /// Dense rate of the GPUs' data sheets; 0: unknown. None: the devices have no data sheet (CPU), and MFU is relative
  /// to the measured rate.
  std::optional<double> data_sheet = {};
};

/// Measured peak rate of all devices together, in FLOP per second: the reference of measured MFU. The short measurement
/// before training can be too low, so a faster step raises the ceiling to its own rate, and measured MFU never exceeds
/// 100%.
class FlopsCeiling {
 public:
  FlopsCeiling() = default;  ///< unknown ceiling: every share is 0
  explicit FlopsCeiling(double measured) : measured_(measured), value_(measured) {}

  /// Returns `rate` relative to the ceiling. A higher rate first raises the ceiling.
  double share(std::int64_t step, double rate);
  [[nodiscard]] double value() const noexcept { return value_; }
  /// Ceiling before the last call of share(), if that raised it.
  [[nodiscard]] const std::optional<double>& raised_from() const noexcept { return raised_from_; }
  /// "measured MFU: peak 200FLOP/s before training, raised to 400FLOP/s (200%) by step 7"; empty: no step raised it.
  [[nodiscard]] std::string describe_raises() const;

 private:
  double measured_ = 0, value_ = 0;
  std::optional<double> raised_from_;
  std::int64_t raises_ = 0, first_step_ = 0, last_step_ = 0;  // number of raises; steps of the first and the last
};

class Reporter {
 public:
  struct Options {
    TrainerOptions trainer;
    std::string item = "token";  ///< unit of the counts
    double tokens_per_step = 0;
    double flops_per_step = 0;   ///< model FLOP per step over all ranks
    double bytes_per_token = 0;  ///< bytes of validation text per token; 0: unknown or not text
    bool quiet = false;          ///< metrics only
    std::int64_t lines_every =
        1;  ///< a line every N steps, and for the first, last and bad steps; 0: no step lines
    /// JSON object added to the first step's record; empty: none.
    std::string configuration = {};
    /// Rewrites warnings that name settings as fields; null: unchanged.
    std::function<std::string(std::string_view text)> wording = {};
    /// Also receives every line of the metrics, even without a file; may be null.
    std::function<void(std::string_view record)> records = {};
  };

  /// `metrics` takes the JSON objects; may be null.
  Reporter(const Options& options, const runtime::MemoryPlan& memory, std::unique_ptr<runtime::RecordFile> metrics);
  ~Reporter();

  /// `now`: start of the first step.
  void start(runtime::Duration now, const PeakRates& peak);
  void step(const StepResult& result, runtime::Duration now);
  void evaluation(const EvaluationResult& result, runtime::Duration now);
  /// `text` may be any bytes; printable() filters it.
  void sample(std::int64_t step, const std::string& text, runtime::Duration now);
  void checked(const ReplicaReport& report, std::optional<BadStepOptions::Action> follows, runtime::Duration now);
  void checkpoint(const CheckpointResult& result);
  /// Adds a JSON object to the metrics; callers use it after finish().
  void record(const std::string& object);
  void finish();

  [[nodiscard]] std::optional<double> first_loss() const noexcept { return first_loss_; }
  [[nodiscard]] double last_loss() const noexcept { return last_loss_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  /// Median duration of the last steps.
  [[nodiscard]] double median_step_seconds() const { return recent_seconds_.value(); }
  /// Number and mean duration of replica checks; empty: there were none.
  [[nodiscard]] std::string checks() const;
  /// File of the metrics; may be null.
  [[nodiscard]] runtime::RecordFile* metrics() noexcept { return metrics_.get(); }
  [[nodiscard]] const FlopsCeiling& ceiling() const noexcept { return ceiling_; }

 private:
  void bad_step(const BadStep& bad);
  /// Prints new and former stragglers; returns all current ones as JSON for the step's record.
  [[nodiscard]] std::string straggling(const StepResult& result);
  void rebalance(const StepResult& result);
  void warn(std::int64_t step, const std::string& line);
  [[nodiscard]] std::string worded(const std::string& text) const;
  /// Returns whether JSON objects have a destination.
  [[nodiscard]] bool records() const { return metrics_ != nullptr || options_.records; }
  void hold(std::int64_t step);
  void write_held(const std::string& more = "");
  [[nodiscard]] bool counts_tokens() const { return options_.item == "token"; }
  [[nodiscard]] std::string step_text(std::int64_t step) const;
  [[nodiscard]] bool has_line(const StepResult& result) const;
  void draw_bar(std::int64_t step);
  enum class Colour { plain, good, warning, bad };
  /// Prints step and text unless quiet, in `colour` if the terminal shows colours.
  void print(std::int64_t step, const std::string& text, Colour colour = Colour::plain);
  void clear_bar();

  Options options_;
  std::string memory_json_;
  std::size_t memory_bytes_;
  std::unique_ptr<runtime::RecordFile> metrics_;
  bool terminal_;
  bool colours_;
  bool bar_drawn_ = false;
  std::string held_;  // the step's JSON object without its closing brace, until evaluation and sample are added
  bool sample_follows_ = false;
  runtime::Duration last_{};  // start of the current step
  FlopsCeiling ceiling_;
  std::optional<double> data_sheet_;
  std::size_t steps_ = 0;
  std::size_t checks_ = 0;
  double check_seconds_ = 0;
  RecentMedian recent_seconds_;
  Stragglers stragglers_;
  std::optional<double> first_loss_;
  double last_loss_ = 0;
};

/// Replaces invalid UTF-8 and control characters, except tabs and newlines, by U+FFFD.
[[nodiscard]] std::string printable(std::string_view text);
/// "1:02:03", "2:03".
[[nodiscard]] std::string format_duration(double seconds);
/// "1.23k", "4.56M"; at most five characters from 1 to 999E.
[[nodiscard]] std::string format_count(double value);

/// Prints `digits` decimals, or fewer to fit into `columns` (at least 7); "1.2e+09" if the integer part does not fit.
[[nodiscard]] std::string format_fitting(double value, int digits, int columns);

}  // namespace ranvier::actors
