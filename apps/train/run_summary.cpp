// Console output of a run before and after its steps: file locations, final summary.
#include "apps/program/flag_names.hpp"
#include "apps/program/text_table.hpp"
#include "apps/train/report.hpp"
#include "apps/train/run.hpp"

#include <fmt/ranges.h>

#include <cstdio>
#include <string>

namespace ranvier::apps {

void Run::print_totals() {
  const actors::TrainerOptions& options = plan_.trainer;
  const actors::Reporter& reporter = *training_->reporter();
  if (reporter.steps() == 0) return fmt::print("\nnothing to train: all {} steps are done\n", options.steps);
  if (const std::string limit = bottleneck_line(training_->totals(), options, run_.job.architecture);
      !limit.empty())
    fmt::print("\n{}\n", fmt::join(wrapped(limit, screen_columns), "\n"));
  fmt::print("\n{}", end_table(training_->totals(), options));
  const double steps = static_cast<double>(reporter.steps());
  const double tokens = steps * options.batch_size * static_cast<double>(run_.job.tokens_of_sample());
  const double seconds = training_->seconds();
  fmt::print("{} {:.0f} steps, {} {}s in {}: {} {}s/s, {:.1f} ms per step (median)\n",
             training_->rank().trainer().stopped_early() ? "stopped after" : "trained", steps,
             actors::format_count(tokens), run_.job.item, actors::format_duration(seconds),
             actors::format_count(tokens / seconds), run_.job.item, 1e3 * reporter.median_step_seconds());
  if (const std::string raises = reporter.ceiling().describe_raises(); !raises.empty()) fmt::print("{}\n", raises);
  if (const std::string checks = reporter.checks(); !checks.empty()) fmt::print("{}\n", checks);
  fmt::print("loss {:.5f} → {:.5f}\n", reporter.first_loss().value_or(0), reporter.last_loss());
  if (const std::string plot = text_plot(training_->losses(), Metric::loss); !plot.empty()) fmt::print("{}", plot);
}

void Run::print_prediction() {
  actors::TrainerOptions options = plan_.trainer;
  if (options.gpu) options.gpu->nccl = nccl_->chosen();
  PredictionCheck check;
  if (profile_.profile) check = check_prediction(run_, options, *profile_.profile, training_->totals());
  fmt::print("\n{}{}\n", check.text, profile_.remark);
  std::fflush(stdout);
  if (!check.record.empty()) training_->reporter()->record(check.record);
}

void Run::print_gpu() {
  // More than at connect(): NCCL allocates some buffers at the first collective that needs them.
  if (nccl_->chosen()) fmt::print("{}\n", nccl_memory_line(nccl_->taken_bytes()));
  if (const runtime::GraphStats graph_stats = training_->rank().context().compute.stream().graph_stats();
      graph_stats.kept > 0) {
    fmt::print("CUDA graphs of rank 0: {} recorded, replayed for {} of {} block calls\n", graph_stats.kept,
               graph_stats.replayed, graph_stats.replayed + graph_stats.queued);
  } else if (!graph_stats.refused.empty()) {
    fmt::print("no CUDA graphs on rank 0: {}\n", with_flags(graph_stats.refused));
  }
  if (const std::size_t bytes = training_->staging_bytes(); bytes > 0)
    fmt::print("pinned memory for messages of rank 0: {}\n", runtime::format_bytes(bytes));
}

void Run::print_files() {
  const auto& tiers = training_->rank().context().tiers;
  const long long cleared = run_.session.sum(tiers.cleared());
  const std::string tier = tiers.description();
  if (!run_.speaks() || tier.empty()) return;
  fmt::print("files: {}\n", tier);
  if (cleared > 0)
    fmt::print("cleared: {} folder{} left by jobs that ended early\n", cleared, cleared > 1 ? "s" : "");
  fmt::print("\n");
  std::fflush(stdout);
}

void Run::print_summary() {
  const RunOptions& asked = options_.run;
  if (plan_.trainer.steps == 0) {
    fmt::print("evaluated in {}\n", actors::format_duration(training_->seconds()));
    if (!asked.metrics.empty()) fmt::print("metrics: {}\n", asked.metrics);
    return;
  }
  print_totals();
  print_gpu();
  if ((profile_.profile || !profile_.remark.empty()) && training_->reporter()->steps() > 0) print_prediction();
  if (!asked.save.empty()) fmt::print("weights: {}\n", saved_path(options_, run_.job).string());
  if (!asked.metrics.empty()) fmt::print("metrics: {}\n", asked.metrics);
  print_trace();
}

void Run::print_trace() const {
  if (training_->trace().empty()) return;
  fmt::print("trace: {} (open it in https://ui.perfetto.dev)\n", training_->trace());
  std::fflush(stdout);
}

}  // namespace ranvier::apps
