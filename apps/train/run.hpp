// One run of one rank, from plan to outputs. Owns all memory that messages, files and devices may still use after a
// failure, so that launch() can print the error before any of it is freed. Loop thread only.
#pragma once

#include "apps/job/devices.hpp"
#include "apps/job/job.hpp"
#include "apps/job/rank_run.hpp"
#include "apps/kernels/peak_flops.hpp"
#include "apps/memory/fit.hpp"
#include "apps/memory/job_plan.hpp"
#include "apps/memory/saved_column.hpp"
#include "apps/train/nccl_session.hpp"
#include "apps/train/prediction_check.hpp"
#include "apps/train/resume_point.hpp"
#include "apps/train/training.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class Run {
 public:
  using Clock = std::chrono::steady_clock;

  /// Objects of the program, which outlive all its runs.
  struct Program {
    runtime::MpiSession& session;
    runtime::ThreadWatchdog& watch;
    Job& job;
    const JobBuilder& build;         ///< made the job
    StopSignals* signals = nullptr;  ///< as in RankRun, like the next two
    LiveRun* live = nullptr;
    std::vector<std::string>& missing;
    Clock::time_point began;  ///< start of the program
  };

  Run(const Program& program, TrainOptions options);
  ~Run();

  /// Plans, trains, saves and reports; a dry run ends after the plan. Returns the exit status, the same on all ranks.
  /// Throws FailedTogether on all ranks before training, and Error on the rank where training fails. Called once.
  [[nodiscard]] int execute();

  /// Sends the error of this rank to the live page, after execute() failed and before the job ends.
  void tell_failure(std::string_view message);

  /// After execute(): set if another Run must resume from a checkpoint.
  [[nodiscard]] const std::optional<actors::Rollback>& rollback() const noexcept { return rollback_; }
  /// After a rollback, the same on all ranks: checkpoint that this run resumed from; empty: it started from scratch.
  [[nodiscard]] const std::string& resumed_from() const noexcept { return resume_point_->place().checkpoint; }
  /// After a rollback, the same on all ranks: whether this run completed a checkpoint.
  [[nodiscard]] bool took_checkpoints() const noexcept { return took_checkpoints_; }

 private:
  void print_plan() const;
  /// Called by all ranks. Prints where states are stored in files, and the leftovers that were deleted there.
  void print_files();
  /// Prints the final summary: bottleneck, tables, totals, prediction and output paths. Rank 0, after training.
  void print_summary();
  void print_totals();
  void print_gpu();
  void print_prediction();
  /// Prints the path of the trace, if one was written. Rank 0.
  void print_trace() const;
  /// Prints the fit check of a dry run; true on all ranks if the job fits.
  [[nodiscard]] bool print_fit() const;
  [[nodiscard]] std::string advice(JobCapacity capacity) const;
  /// Checks that the folder of --save is shared, and that weights and checkpoints have disk space.
  void check_files();
  void check_checkpoint_space();
  /// Starts the timer that stops training before --time-limit.
  void watch_time_limit();
  /// Whether any rank received a stop signal before training.
  [[nodiscard]] bool stopped() const;
  /// Takes the algorithms of collectives from the checkpoint if possible, so that results stay bit-identical.
  void keep_algorithms();
  /// Keeps kernel measurements in the folder of --checkpoint.
  void keep_kernels();
  /// Loads initial states on all ranks; from an older checkpoint if one is damaged.
  void load();
  void print_remarks();
  void choose();
  /// Measures peak rates while device memory is free; execute() measures again with states allocated.
  void measure_peak();

  Program program_;
  TrainOptions options_;
  runtime::AsioLoop loop_;
  runtime::MpiTransport transport_;
  RankRun run_;
  JobPlan plan_;
  std::optional<ResumePoint> resume_point_;
  std::optional<SavedColumn> column_before_;  // from the checkpoint that this run resumes from
  Devices devices_;
  std::optional<NcclSession> nccl_;
  PeakFlops peak_;
  std::optional<double> data_sheet_;  // data_sheet_flops()
  ProfileOfRun profile_;              // on rank 0
  std::optional<Training> training_;
  std::optional<actors::Rollback> rollback_;
  bool took_checkpoints_ = false;
};

}  // namespace ranvier::apps
