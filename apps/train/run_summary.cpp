#include "apps/train/run_summary.hpp"

#include "apps/program/flag_names.hpp"
#include "apps/program/text_table.hpp"
#include "apps/train/report.hpp"

#include <fmt/ranges.h>

#include <cstdio>
#include <string>

namespace ranvier::apps {

namespace {

void print_training(const RankRun& run, const actors::TrainerOptions& options, Training& training) {
  const actors::Reporter& reporter = *training.reporter();
  if (reporter.steps() == 0) return fmt::print("\nnothing to train: all {} steps are done\n", options.steps);
  if (const std::string limit = bottleneck_line(training.totals(), options, run.job.architecture); !limit.empty())
    fmt::print("\n{}\n", fmt::join(wrapped(limit, screen_columns), "\n"));
  fmt::print("\n{}", end_table(training.totals(), options));
  const double steps = static_cast<double>(reporter.steps());
  const double tokens = steps * options.batch_size * static_cast<double>(run.job.tokens_of_sample());
  const double seconds = training.seconds();
  fmt::print("{} {:.0f} steps, {} {}s in {}: {} {}s/s, {:.1f} ms per step (median)\n",
             training.rank().trainer().stopped_early() ? "stopped after" : "trained", steps,
             actors::format_count(tokens), run.job.item, actors::format_duration(seconds),
             actors::format_count(tokens / seconds), run.job.item, 1e3 * reporter.median_step_seconds());
  if (const std::string raises = reporter.ceiling().describe_raises(); !raises.empty()) fmt::print("{}\n", raises);
  if (const std::string checks = reporter.checks(); !checks.empty()) fmt::print("{}\n", checks);
  fmt::print("loss {:.5f} → {:.5f}\n", reporter.first_loss().value_or(0), reporter.last_loss());
  if (const std::string plot = text_plot(training.losses(), Metric::loss); !plot.empty()) fmt::print("{}", plot);
}

void print_prediction(const RankRun& run, actors::TrainerOptions options, Training& training,
                      const NcclSession& nccl, const ProfileOfRun& profile) {
  if (options.gpu) options.gpu->nccl = nccl.chosen();
  PredictionCheck check;
  if (profile.profile) check = check_prediction(run, options, *profile.profile, training.totals());
  fmt::print("\n{}{}\n", check.text, profile.remark);
  std::fflush(stdout);
  if (!check.record.empty()) training.reporter()->record(check.record);
}

void print_gpu(Training& training, const NcclSession& nccl) {
  // More than at connect(): NCCL allocates some buffers at the first collective that needs them.
  if (nccl.chosen()) fmt::print("{}\n", nccl_memory_line(nccl.taken_bytes()));
  if (const runtime::GraphStats graph_stats = training.rank().context().compute.stream().graph_stats();
      graph_stats.kept > 0) {
    fmt::print("CUDA graphs of rank 0: {} recorded, replayed for {} of {} block calls\n", graph_stats.kept,
               graph_stats.replayed, graph_stats.replayed + graph_stats.queued);
  } else if (!graph_stats.refused.empty()) {
    fmt::print("no CUDA graphs on rank 0: {}\n", with_flags(graph_stats.refused));
  }
  if (const std::size_t bytes = training.staging_bytes(); bytes > 0)
    fmt::print("pinned memory for messages of rank 0: {}\n", runtime::format_bytes(bytes));
}

}  // namespace

void print_files(const RankRun& run, const actors::Rank& rank) {
  const long long cleared = run.session.sum(rank.context().tiers.cleared());
  const std::string tier = rank.context().tiers.description();
  if (!run.speaks() || tier.empty()) return;
  fmt::print("files: {}\n", tier);
  if (cleared > 0)
    fmt::print("cleared: {} folder{} left by jobs that ended early\n", cleared, cleared > 1 ? "s" : "");
  fmt::print("\n");
  std::fflush(stdout);
}

void print_summary(const RankRun& run, const actors::TrainerOptions& options, Training& training,
                   const NcclSession& nccl, const ProfileOfRun& profile) {
  const RunOptions& asked = run.options.run;
  if (options.steps == 0) {
    fmt::print("evaluated in {}\n", actors::format_duration(training.seconds()));
    if (!asked.metrics.empty()) fmt::print("metrics: {}\n", asked.metrics);
    return;
  }
  print_training(run, options, training);
  print_gpu(training, nccl);
  if ((profile.profile || !profile.remark.empty()) && training.reporter()->steps() > 0)
    print_prediction(run, options, training, nccl, profile);
  if (!asked.save.empty()) fmt::print("weights: {}\n", saved_path(run.options, run.job).string());
  if (!asked.metrics.empty()) fmt::print("metrics: {}\n", asked.metrics);
  print_trace(training);
}

void print_trace(const Training& training) {
  if (training.trace().empty()) return;
  fmt::print("trace: {} (open it in https://ui.perfetto.dev)\n", training.trace());
  std::fflush(stdout);
}

}  // namespace ranvier::apps
