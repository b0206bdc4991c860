// What people and their scripts see of a run, on rank 0: a line per step, a progress bar on a terminal, one
// JSON object per step in the metrics file. It reacts to results and never asks anybody. Writing may block, so
// it lives on a stream of its own beside the loop, and may come late: when something happened it is told, by the loop's
// clock. One thread at a time.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/watch/flops_ceiling.hpp"
#include "actors/rank/trainer.hpp"
#include "actors/watch/bad_steps.hpp"
#include "actors/watch/replica_check.hpp"
#include "actors/watch/recent_median.hpp"
#include "actors/watch/stragglers.hpp"
#include "runtime/arena.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/record_file.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::actors {

/// Rates that shares of the devices' arithmetic are taken of: FLOP per second of all ranks' devices together, in the
/// precision of the run.
struct PeakRates {
  double measured = 0;  ///< by large matrix products before training; 0: unknown
  /// Dense rate on the GPUs' data sheets; 0: unknown. None: the devices have no data sheet, and MFU is the share of the
  /// measured rate.
  std::optional<double> data_sheet = {};
};

class Reporter {
 public:
  struct Options {
    std::int64_t steps = 1;      ///< 0: an evaluation is all there is
    std::string item = "token";  ///< what is counted below
    double tokens_per_step = 0;
    double flops_per_step = 0;  ///< of the model, over all ranks
    bool shows_loss_scale = false;
    double bytes_per_token = 0;  ///< of the text that is evaluated, where its tokens are of text; 0: unknown
    BadStepOptions bad_steps;
    runtime::GridShape grid;
    int passes = 1;                ///< forward, of a rank in a step: microbatches times slices of the model
    bool quiet = false;            ///< metrics only
    std::int64_t lines_every = 1;  ///< steps, of which one has a line, beside the first and the last; 0: none has
    /// A JSON object, which the record of the first step has beside its own values; empty: none.
    std::string configuration = {};
    /// Gets every line of the metrics, too, whether there is a file or not; null: nobody does.
    std::function<void(std::string_view record)> records = {};
  };

  /// `metrics` takes the JSON objects; may be null.
  Reporter(const Options& options, const runtime::MemoryPlan& memory, std::unique_ptr<runtime::RecordFile> metrics);
  ~Reporter();

  /// The first step begins at `now`.
  void start(runtime::Duration now, const PeakRates& peak);
  void step(const StepResult& result, runtime::Duration now);
  void evaluation(const EvaluationResult& result, runtime::Duration now);
  /// `text` may be any bytes; what no terminal should get is replaced.
  void sample(std::int64_t step, const std::string& text, runtime::Duration now);
  void checked(const ReplicaReport& report, std::optional<BadStepOptions::Action> follows, runtime::Duration now);
  /// What became of a checkpoint.
  void checkpoint(const CheckpointResult& result);
  /// Another JSON object, as text, for the metrics; after finish().
  void record(const std::string& object);
  void finish();

  [[nodiscard]] std::optional<double> first_loss() const noexcept { return first_loss_; }
  [[nodiscard]] double last_loss() const noexcept { return last_loss_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  /// Of the last steps.
  [[nodiscard]] double median_step_seconds() const { return recent_seconds_.value(); }
  /// Comparisons of copies of states, and what they took; empty: there were none.
  [[nodiscard]] std::string checks() const;
  /// File of the metrics; may be null.
  [[nodiscard]] runtime::RecordFile* metrics() noexcept { return metrics_.get(); }
  [[nodiscard]] const FlopsCeiling& ceiling() const noexcept { return ceiling_; }

 private:
  void bad_step(const BadStep& bad);
  /// Names ranks that have become slow, and those that are not any more; all that are, for the metrics.
  [[nodiscard]] std::string straggling(const StepResult& result);
  void rebalance(const StepResult& result);
  void say(std::int64_t step, const std::string& line);
  /// Whether anybody takes JSON objects.
  [[nodiscard]] bool records() const { return metrics_ != nullptr || options_.records; }
  void write(const std::string& line);
  void hold(std::int64_t step);
  void write_held(const std::string& more = "");
  [[nodiscard]] bool counts_tokens() const { return options_.item == "token"; }
  [[nodiscard]] std::string step_text(std::int64_t step) const;
  [[nodiscard]] bool has_line(const StepResult& result) const;
  void draw_bar(std::int64_t step);
  enum class Colour { plain, good, warning, bad };
  /// A line with its end, on a terminal that shows colours in that one.
  void print_line(const std::string& line, Colour colour = Colour::plain) const;
  void clear_bar();

  Options options_;
  std::string memory_json_;
  std::size_t memory_bytes_;
  std::unique_ptr<runtime::RecordFile> metrics_;
  bool terminal_;
  bool colours_;
  bool bar_drawn_ = false;
  std::string held_;  // the step's JSON object but for its closing brace, in case something follows
  bool sample_follows_ = false;
  runtime::Duration last_{};  // when the step that is being computed began
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

/// Text with U+FFFD for bytes that are no UTF-8 and for control characters but tabs and new lines.
[[nodiscard]] std::string printable(std::string_view text);
/// How far and when steps raised the ceiling; empty: none did.
[[nodiscard]] std::string describe_raises(const FlopsCeiling& ceiling);
/// "1:02:03", "2:03".
[[nodiscard]] std::string format_duration(double seconds);
/// "1.23k", "4.56M"; five characters at most, from 1 to 999E.
[[nodiscard]] std::string format_count(double value);

/// With so many digits behind the point, or fewer where that takes more than `columns`, which are 7 at least; "1.2e+09"
/// where none are left.
[[nodiscard]] std::string format_fitting(double value, int digits, int columns);

}  // namespace ranvier::actors
