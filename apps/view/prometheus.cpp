// Metrics of a run in Prometheus' text format.
#include "apps/program/markup.hpp"
#include "apps/view/live_run.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

namespace ranvier::apps {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{:.17g}", value);
}

class Metrics {
 public:
  /// Begins a metric: a counter if the name ends with _total, otherwise a gauge.
  void family(std::string_view name, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP ranvier_{0} {1}\n# TYPE ranvier_{0} {2}\n", name, help,
                   name.ends_with("_total") ? "counter" : "gauge");
  }
  void value(auto number, std::string_view labels = {}) {
    fmt::format_to(std::back_inserter(text_), "ranvier_{}{}{}{} {}\n", name_, labels.empty() ? "" : "{", labels,
                   labels.empty() ? "" : "}", value_text(static_cast<double>(number)));
  }
  void one(std::string_view name, std::string_view help, auto number) {
    family(name, help);
    value(number);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_, name_;
};

/// Escapes a label value.
std::string label_text(std::string_view text) {
  return escaped(text, {{'\n', "\\n"}, {'"', "\\\""}, {'\\', "\\\\"}});
}

}  // namespace

std::string LiveRun::make_prometheus() const {
  const History::Totals& totals = history_.totals();
  const auto last = [this](std::string_view name) { return number_of(history_.last(), name); };
  Metrics all;
  all.family("info", "Model and grid of the run.");
  all.value(1, fmt::format("model=\"{}\",stages=\"{}\",rows=\"{}\",phase=\"{}\"", label_text(about_.model),
                           about_.grid.g_inter, about_.grid.g_data, label_text(phase_.name)));
  all.one("step", "Last finished step.", history_.series().last_step());
  all.one("steps", "Total number of steps.", about_.steps);
  all.one("loss", "Training loss of the last step.", last("loss"));
  all.one("gradient_norm", "Global gradient norm before clipping.", last("grad_norm"));
  all.one("learning_rate", "Learning rate of the last step.", last("lr"));
  all.one("loss_scale", "Loss scale of the last step.", last("loss_scale"));
  all.one("step_seconds", "Duration of the last step.", last("seconds"));
  all.one(fmt::format("{}s_per_second", about_.item), "Throughput of the last step.", last("tokens_per_second"));
  all.one("mfu_ratio",
          "Model FLOP per second relative to the GPUs' dense data sheet rate; on CPUs to the measured rate.",
          last("mfu"));
  all.one("measured_mfu_ratio",
          "Model FLOP per second relative to the measured rate of large matrix multiplications.",
          last("measured_mfu"));
  all.one(fmt::format("trained_{}s", about_.item), "Amount of training data, repeated steps counted once.",
          totals.tokens);
  all.one("bad_steps_total", "Bad steps: loss or gradient norm not finite, or loss spike.", totals.bad_steps);
  all.one("skipped_steps_total", "Steps without a parameter update.", totals.skipped);
  all.one("repeated_seconds_total", "Duration of steps that were repeated later.", totals.repeated_seconds);
  all.one("checkpoints_total", "Complete checkpoints.", totals.checkpoints);
  all.one("checkpoint_wait_seconds_total", "Time that checkpoints stalled the optimizer.", totals.checkpoint_waits);
  if (!history_.evaluations().empty()) {
    const History::Evaluation& evaluation = history_.evaluations().back();
    if (evaluation.loss) all.one("validation_loss", "Last validation loss.", *evaluation.loss);
    if (evaluation.accuracy)
      all.one("validation_accuracy_ratio", "Fraction of correct predictions in the last validation.",
              *evaluation.accuracy);
    if (evaluation.hellaswag)
      all.one("hellaswag_accuracy_ratio", "Fraction of correct HellaSwag questions.", *evaluation.hellaswag);
  }
  if (ranks_.ranks.empty()) return all.take();
  const auto labels = [this](std::size_t rank) {
    const auto position = runtime::Grid(about_.grid, about_.grid.ranks()).position(static_cast<int>(rank));
    return fmt::format("rank=\"{}\",stage=\"{}\",row=\"{}\"", rank, position.stage, position.row);
  };
  all.family("rank_seconds_total", "Time of a rank by activity, updated after a request.");
  for (std::size_t r = 0; r < ranks_.ranks.size(); ++r) {
    using runtime::SpanKind;
    for (const SpanKind kind : {SpanKind::forward, SpanKind::backward, SpanKind::weights, SpanKind::optimizer,
                                SpanKind::wait, SpanKind::send, SpanKind::gather, SpanKind::reduce})
      all.value(ranks_.ranks[r].summary.seconds[static_cast<std::size_t>(kind)],
                fmt::format("{},kind=\"{}\"", labels(r), runtime::to_string(kind)));
  }
  all.family("rank_sent_bytes_total", "Bytes sent by a rank, by link class.");
  for (std::size_t r = 0; r < ranks_.ranks.size(); ++r) {
    all.value(ranks_.ranks[r].summary.bytes_intra, labels(r) + ",link=\"intra\"");
    all.value(ranks_.ranks[r].summary.bytes_inter, labels(r) + ",link=\"inter\"");
  }
  all.family("rank_device_memory_bytes", "Device memory allocated by a rank.");
  for (std::size_t r = 0; r < ranks_.ranks.size(); ++r) all.value(ranks_.ranks[r].summary.device_bytes, labels(r));
  all.family("rank_resident_memory_peak_bytes", "Peak physical memory of a rank's process.");
  for (std::size_t r = 0; r < ranks_.ranks.size(); ++r)
    all.value(ranks_.ranks[r].summary.resident_bytes, labels(r));
  return all.take();
}

}  // namespace ranvier::apps
