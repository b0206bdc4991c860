// The training of one rank, from its actors to the end of the last save: what is built once everything is planned
// and chosen, what watches it while the loop runs, and what it tells. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpoint_files.hpp"
#include "actors/checkpoint/checkpoint_source.hpp"
#include "actors/rank/rank.hpp"
#include "actors/watch/reporter.hpp"
#include "actors/watch/watchdog.hpp"
#include "apps/train/devices.hpp"
#include "apps/train/background_writer.hpp"
#include "apps/train/files/watched_reads.hpp"
#include "apps/train/files/weight_saving.hpp"
#include "apps/train/nccl_session.hpp"
#include "apps/train/plan/job_plan.hpp"
#include "apps/train/rank_watch.hpp"
#include "apps/train/resume_point.hpp"
#include "apps/train/step_clock.hpp"
#include "apps/train/step_meter.hpp"
#include "apps/train/totals.hpp"
#include "apps/view/event_file.hpp"
#include "apps/view/series.hpp"
#include "runtime/staged_transport.hpp"

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
  /// Allocates what this rank's plan says. All outlive it.
  Training(const RankRun& run, const JobPlan& plan, Devices& devices, NcclSession& nccl, ResumePoint& resume_point);
  ~Training();

  /// Fills what the training begins with or goes on from, of this rank; blocks. Returns how the checkpoint is damaged,
  /// where another one may be loaded instead.
  [[nodiscard]] std::optional<Error> load();
  // Once all ranks have loaded.
  /// Takes the memory and files of checkpoints.
  void prepare_checkpoints();
  /// Opens what the run writes; metrics of a training that goes on lose the steps that are done again. Nothing may
  /// refuse the run afterwards.
  void open_outputs();

  /// Trains or evaluates, saves, and gathers the totals of all ranks on rank 0. Throws Error on the rank that fails;
  /// memory that messages, files and devices may still use stays until this object is destroyed.
  void execute(const actors::PeakRates& peak);

  [[nodiscard]] actors::Rank& rank() noexcept { return *rank_; }
  /// What this rank writes of each checkpoint; 0: none are taken.
  [[nodiscard]] std::uint64_t checkpoint_bytes() const { return checkpoints_ ? checkpoints_->file_bytes() : 0; }

  /// On rank 0, on the loop: ends the run after its step as a signal would, and says `why`.
  void stop(const std::string& why);

  // After execute().
  /// Whether checkpoints to go on from became whole; false but on rank 0.
  [[nodiscard]] bool took_checkpoints() const noexcept { return took_checkpoints_; }
  /// Null but on rank 0.
  [[nodiscard]] actors::Reporter* reporter() noexcept { return reporter_ ? &*reporter_ : nullptr; }
  /// Of steps; empty but on rank 0.
  [[nodiscard]] const Series& losses() const noexcept { return losses_; }
  [[nodiscard]] const std::vector<RankTotals>& totals() const noexcept { return totals_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  /// Pinned memory that messages went by.
  [[nodiscard]] std::size_t staging_bytes() const { return staged_ ? staged_->staging_bytes() : 0; }
  /// Path of the trace that was written; empty: none was.
  [[nodiscard]] const std::string& trace() const noexcept { return trace_; }
  /// Last attempt to write what the disk refused of metrics and event files; adds those that stay incomplete to the
  /// run's missing outputs. Blocks for up to --timeout each.
  void finish_outputs();

 private:
  void make_reporter();
  /// Where records go beside --metrics; null: nowhere.
  [[nodiscard]] std::function<void(std::string_view)> records();
  /// All flags with their values.
  [[nodiscard]] std::string configuration_json() const;
  [[nodiscard]] RankWatch::Options watching(const actors::Watchdog& watchdog);
  /// As --save-every asks for.
  void save_weights_of_steps();
  [[nodiscard]] actors::TrainerHooks hooks();
  /// When the run will have ended if it is asked to now, and what it saves. Loop thread only.
  [[nodiscard]] std::string expected_end() const;
  /// Hands `what` to the reports' stream: on rank 0, about the run, nobody waits for it.
  void report(std::function<void()> what);
  /// On rank 0, where somebody watches.
  void say_phase(std::string phase);
  void trained();
  void saved();
  void collect_trace();

  const RankRun& run_;
  const JobPlan& plan_;
  Devices& devices_;
  NcclSession& nccl_;
  ResumePoint& resume_point_;
  std::optional<runtime::StagedTransport> staged_;  // where MPI does not reach the GPU's memory
  std::optional<actors::CheckpointSource> source_;  // while it loads
  std::optional<WatchedSource> watched_source_;     // likewise
  std::optional<actors::CheckpointFiles> checkpoints_;
  std::optional<actors::Rank> rank_;
  std::optional<EventFile> event_file_;       // on rank 0, with --tensorboard
  std::optional<actors::Reporter> reporter_;  // on rank 0
  std::optional<WeightTarget> weights_of_steps_;
  std::optional<WeightSaving> saving_;
  RankWatch* rank_watch_ = nullptr;           // while the loop runs, with --serve
  BackgroundWriter files_;                    // both end before what they write with
  Series losses_{4096};                       // for a curve at the end
  std::atomic<bool> snapshot_waits_ = false;  // for the reports' stream
  std::unique_ptr<runtime::Stream> reports_;  // whoever does not read the output holds up no file
  StepClock step_clock_;
  StepMeter step_meter_;
  std::atomic<bool> over_ = false;  // all steps are trained
  bool took_checkpoints_ = false;
  std::chrono::steady_clock::time_point started_;
  double seconds_ = 0;
  double last_loss_ = 0;
  std::vector<RankTotals> totals_;
  std::string trace_;
};

}  // namespace ranvier::apps
