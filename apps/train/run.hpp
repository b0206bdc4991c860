// One run of one rank, from its plan to what it leaves behind. Everything that messages, files and devices may
// still work on when something fails belongs to it, so that whoever holds it can say what failed before any of that
// is freed.
#pragma once

#include "apps/train/devices.hpp"
#include "apps/train/job.hpp"
#include "apps/train/kernels/peak_flops.hpp"
#include "apps/train/nccl_session.hpp"
#include "apps/train/plan/job_plan.hpp"
#include "apps/train/plan/saved_column.hpp"
#include "apps/train/prediction_check.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/resume_point.hpp"
#include "apps/train/training.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/mpi_transport.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class Run {
 public:
  using Clock = std::chrono::steady_clock;

  /// All but the options outlive it. `began`: start of the program. `signals`: null for a dry run. `live`: may be null.
  /// `missing`: as in RankRun.
  Run(runtime::MpiSession& session, runtime::StartupWatchdog& watch, TrainOptions options, Job& job,
      StopSignals* signals, LiveRun* live, std::vector<std::string>& missing, Clock::time_point began);
  ~Run();

  /// Plans, trains, saves and reports, or stops after the plan for a dry run. Throws FailedTogether for what
  /// goes wrong before training, and Error on the rank where training fails. Returns the exit status, the same on
  /// all ranks. Once.
  [[nodiscard]] int execute();

  /// On a rank that failed in execute(), before it ends the job: whoever watches the run hears why.
  void tell_failure(std::string_view message);

  /// After execute(), where the training is to go on from a checkpoint, in another run.
  [[nodiscard]] const std::optional<actors::Rollback>& rollback() const noexcept { return rollback_; }
  /// Then, the same on all ranks: the checkpoint that this run went on from; empty: it began.
  [[nodiscard]] const std::string& resumed_from() const noexcept { return resume_point_->place().checkpoint; }
  /// Likewise, whether it has made any whole itself.
  [[nodiscard]] bool took_checkpoints() const noexcept { return took_checkpoints_; }

 private:
  void say_plan() const;
  /// Of a dry run, for all ranks: whether it fits.
  [[nodiscard]] bool print_fit() const;
  /// Where states live in files, and whether weights and checkpoints have space beside them.
  void check_files();
  void check_checkpoint_space();
  /// Stops the training before --time-limit ends it.
  void watch_time_limit();
  /// Whether any rank was asked to stop before it trains.
  [[nodiscard]] bool stopped() const;
  // What bits depend on and runs choose by themselves, taken over from the checkpoint where that can be.
  void keep_algorithms();
  /// What was measured of kernels is kept with the training.
  void keep_kernels();
  /// Fills what the training begins with, on all ranks, from an older checkpoint where one is damaged.
  void load();
  void say_remarks();
  void choose();
  /// The first turns, while the device's memory is free; the others come when states are in it.
  void measure_peak();

  TrainOptions options_;
  Job& job_;
  runtime::AsioLoop loop_;
  runtime::MpiTransport transport_;
  RankRun run_;
  Clock::time_point began_;
  JobPlan plan_;
  std::optional<ResumePoint> resume_point_;
  std::optional<SavedColumn> column_before_;  // of the runs that this one goes on from
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
