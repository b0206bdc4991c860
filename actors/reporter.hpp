// What people and their scripts see of a run, on rank 0: a line per step, a progress bar on a terminal, one
// JSON object per step in the metrics file. It reacts to results and never asks anybody. Writing may block, so
// it lives on a stream of its own beside the loop. One thread at a time.
#pragma once

#include "actors/trainer.hpp"
#include "runtime/arena.hpp"
#include "runtime/log_file.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::actors {

class Reporter {
 public:
  struct Options {
    std::int64_t steps = 1;     ///< 0: an evaluation is all there is
    double tokens_per_step = 0;
    double flops_per_step = 0;  ///< of the model, over all ranks
    double peak_flops = 0;      ///< of all ranks' devices together; 0: unknown
    bool shows_loss_scale = false;
    double bytes_per_token = 0;  ///< of the text that is evaluated, where its tokens are of text; 0: unknown
    bool quiet = false;         ///< metrics only
  };

  /// `metrics` takes the JSON objects; may be null.
  Reporter(const Options& options, const runtime::MemoryPlan& memory, std::unique_ptr<runtime::LogFile> metrics);
  ~Reporter();

  void set_peak_flops(double peak_flops) { options_.peak_flops = peak_flops; }
  /// The clock of the first step starts here.
  void start();
  void step(const StepResult& result);
  void evaluation(const EvaluationResult& result);
  /// `text` may be any bytes; what no terminal should get is replaced.
  void sample(std::int64_t step, const std::string& text);
  void finish();

  [[nodiscard]] std::optional<double> first_loss() const noexcept { return first_loss_; }
  [[nodiscard]] double last_loss() const noexcept { return last_loss_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  /// Of the last steps, at most recent_steps of them.
  [[nodiscard]] double median_step_seconds() const;
  /// Lines of metrics that were not written, in words; empty: all were.
  [[nodiscard]] std::string lost_metrics() const { return metrics_ ? metrics_->loss() : std::string(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t recent_steps = 64;

  void write_held(const std::string& more = "");
  [[nodiscard]] std::string step_text(std::int64_t step) const;
  void draw_bar(std::int64_t step);
  void clear_bar();

  Options options_;
  std::string memory_json_;
  std::size_t memory_bytes_;
  std::unique_ptr<runtime::LogFile> metrics_;
  bool terminal_;
  bool bar_drawn_ = false;
  std::string held_;  // the step's JSON object but for its closing brace, in case something follows
  bool sample_follows_ = false;
  Clock::time_point last_;
  std::size_t steps_ = 0;
  std::vector<double> recent_seconds_;
  std::optional<double> first_loss_;
  double last_loss_ = 0;
};

/// Text with U+FFFD for bytes that are no UTF-8 and for control characters but tabs and new lines.
[[nodiscard]] std::string printable(std::string_view text);
/// "1:02:03", "2:03".
[[nodiscard]] std::string format_duration(double seconds);
/// "1.23k", "4.56M".
[[nodiscard]] std::string format_count(double value);

}  // namespace ranvier::actors
