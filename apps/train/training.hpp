// Training of one rank: actors, loading, the loop with its watchdog, reports, saves and outputs. Built after the plan
// and the choice of kernels and collectives. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpoint_source.hpp"
#include "actors/rank/checkpoint_files.hpp"
#include "actors/rank/rank.hpp"
#include "actors/watch/reporter.hpp"
#include "actors/watch/watchdog.hpp"
#include "apps/files/watched_reads.hpp"
#include "apps/files/weight_saving.hpp"
#include "apps/job/background_writer.hpp"
#include "apps/job/devices.hpp"
#include "apps/memory/job_plan.hpp"
#include "apps/train/nccl_session.hpp"
#include "apps/train/rank_watch.hpp"
#include "apps/train/resume_point.hpp"
#include "apps/train/step_clock.hpp"
#include "apps/train/totals.hpp"
#include "apps/view/event_file.hpp"
#include "apps/view/series.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class Training {
 public:
  /// Allocates this rank's planned memory. All arguments outlive it.
  Training(const RankRun& run, const JobPlan& plan, Devices& devices, NcclSession& nccl, ResumePoint& resume_point);

  /// Loads this rank's states from the checkpoint or the initial weights; blocks. Returns the error of a damaged
  /// checkpoint if another one may be loaded instead.
  [[nodiscard]] std::optional<Error> load();
  // After load() on all ranks.
  /// Allocates memory and files of checkpoints.
  void prepare_checkpoints();
  /// Opens the outputs. A resumed run drops metrics of steps that it repeats, so nothing may refuse the run afterwards.
  void open_outputs();

  /// Trains or evaluates, saves, and gathers totals on rank 0. Throws Error on the rank that fails. Memory that
  /// messages, files and devices may still use stays allocated until destruction.
  void execute(const actors::PeakRates& peak);

  [[nodiscard]] actors::Rank& rank() noexcept { return *rank_; }
  /// Bytes per checkpoint of this rank; 0: no checkpoints.
  [[nodiscard]] std::uint64_t checkpoint_bytes() const { return checkpoints_ ? checkpoints_->file_bytes() : 0; }

  /// Ends the run after the current step, like a signal, and prints `why`. Rank 0.
  void stop(const std::string& why);

  // After execute().
  /// Whether a checkpoint was completed; always false on other ranks than 0.
  [[nodiscard]] bool took_checkpoints() const noexcept { return took_checkpoints_; }
  /// Null except on rank 0.
  [[nodiscard]] actors::Reporter* reporter() noexcept { return reporter_ ? &*reporter_ : nullptr; }
  /// Loss per step; empty except on rank 0.
  [[nodiscard]] const Series& losses() const noexcept { return losses_; }
  [[nodiscard]] const std::vector<RankTotals>& totals() const noexcept { return totals_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  /// Bytes of pinned memory for staged messages.
  [[nodiscard]] std::size_t staging_bytes() const { return staged_ ? staged_->staging_bytes() : 0; }
  /// Path of the written trace; empty: none.
  [[nodiscard]] const std::string& trace() const noexcept { return trace_; }
  /// Retries records of metrics and event files that a full disk refused; adds incomplete files to the run's missing
  /// outputs. Blocks for at most --timeout per file.
  void finish_outputs();

 private:
  void make_reporter();
  /// Second sink of records besides --metrics; may be null.
  [[nodiscard]] std::function<void(std::string_view)> records();
  /// All flags with their values as texts.
  [[nodiscard]] boost::json::object configuration() const;
  [[nodiscard]] RankWatch::Options watching(const actors::Watchdog& watchdog);
  /// Starts the saves of --save-every.
  void save_weights_of_steps();
  [[nodiscard]] actors::TrainerHooks hooks();
  /// Text: when the run ends if it is stopped now, and its saves. Loop thread only.
  [[nodiscard]] std::string expected_end() const;
  /// Runs `what` on the stream of reports without waiting. Rank 0 only; no effect on other ranks.
  void report(std::function<void()> what);
  /// Sets the phase on the live page, if there is one.
  void report_phase(std::string phase);
  void trained();
  void saved();
  void collect_trace();

  const RankRun& run_;
  const JobPlan& plan_;
  Devices& devices_;
  NcclSession& nccl_;
  ResumePoint& resume_point_;
  std::optional<runtime::StagedTransport> staged_;  // if MPI cannot access GPU memory
  std::optional<actors::CheckpointSource> source_;  // during load()
  std::optional<WatchedSource> watched_source_;     // during load()
  std::optional<actors::CheckpointFiles> checkpoints_;
  std::optional<actors::Rank> rank_;
  std::optional<EventFile> event_file_;       // on rank 0, with --tensorboard
  std::optional<actors::Reporter> reporter_;  // on rank 0
  std::optional<WeightTarget> weights_of_steps_;
  std::optional<WeightSaving> saving_;
  RankWatch* rank_watch_ = nullptr;           // while the loop runs, with --serve
  BackgroundWriter files_;                    // destroyed before its devices
  Series losses_{4096};                       // for the curve of the final summary
  std::atomic<bool> snapshot_waits_ = false;  // a snapshot waits for the stream of reports
  std::unique_ptr<runtime::Stream> reports_;  // own stream: a blocked terminal delays no file
  StepClock step_clock_;
  StepMeter step_meter_;
  bool over_ = false;  // all steps are trained
  bool took_checkpoints_ = false;
  std::chrono::steady_clock::time_point started_;
  double seconds_ = 0;
  double last_loss_ = 0;
  std::vector<RankTotals> totals_;
  std::string trace_;
};

}  // namespace ranvier::apps
