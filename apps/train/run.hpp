// One run of one rank, from its plan to what it leaves behind. Everything that messages, files and devices may
// still work on when something fails belongs to it, so that whoever holds it can say what failed before any of that
// is freed.
#pragma once

#include "apps/train/devices.hpp"
#include "apps/train/job.hpp"
#include "apps/train/kernels/peak_flops.hpp"
#include "apps/train/nccl_connection.hpp"
#include "apps/train/plan/job_plan.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/training.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/mpi_transport.hpp"

#include <optional>

namespace ranvier::apps {

class Run {
 public:
  /// The session outlives it.
  Run(runtime::MpiSession& session, TrainOptions options, Job job);
  ~Run();

  /// Plans, trains, saves and reports, or stops after the plan for a dry run. Throws FailedTogether for what
  /// goes wrong before training, and Error on the rank where training fails. False: a dry run of a job that does
  /// not fit. Once.
  [[nodiscard]] bool execute();

 private:
  void say_plan() const;
  /// Of a dry run, for all ranks: whether it fits.
  [[nodiscard]] bool say_verdict() const;
  /// Where states live in files, and whether the weights have space beside them.
  void check_files();
  void choose();
  /// The first turns, while the device's memory is free; the others come when states are in it.
  void measure_peak();

  TrainOptions options_;
  Job job_;
  runtime::AsioLoop loop_;
  runtime::MpiTransport transport_;
  RankRun run_;
  JobPlan plan_;
  Devices devices_;
  std::optional<NcclConnection> nccl_;
  PeakFlops peak_;
  std::optional<Training> training_;
};

}  // namespace ranvier::apps
