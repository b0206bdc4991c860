// One run of one rank, from its plan to what it leaves behind. Files and the terminal are written on streams
// of their own, so that a slow disk never holds up the loop.
#pragma once

#include "actors/watch/reporter.hpp"
#include "actors/states/weight_collector.hpp"
#include "apps/train/kernels/collectives_choice.hpp"
#include "apps/train/plan/fit.hpp"
#include "apps/train/launch.hpp"
#include "apps/train/kernels/peak_flops.hpp"
#include "apps/train/report.hpp"
#include "apps/train/files/saved_weights.hpp"
#include "apps/train/step_clock.hpp"
#include "collectives/nccl_column.hpp"
#include "runtime/asio_loop.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/staged_transport.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

class Run {
 public:
  Run(runtime::MpiSession& session, TrainOptions options, Job job);
  ~Run();

  /// Plans, trains, saves and reports, or stops after the plan for a dry run. Throws FailedTogether for what
  /// goes wrong before training, and Error on the rank where training fails. False: a dry run of a job that does not
  /// fit.
  [[nodiscard]] bool execute();

 private:
  void plan();
  void plan_samples();
  void plan_stages();
  /// What the ranks of this job have, as far as this one knows.
  [[nodiscard]] Room room() const;
  /// Of a dry run, for all ranks: whether it fits.
  [[nodiscard]] bool say_verdict() const;
  /// Whether each machine has what its ranks plan to take of its memory.
  void check_memory();
  /// Fails on all ranks if they would read other samples.
  void compare_samples();
  void make_devices();
  /// Whether NCCL carries out collectives; the same on all ranks.
  void choose_collectives();
  /// Where NCCL and stages wait for each other's ranks: CUDA loads a kernel when it is launched for the first time, and
  /// may wait for all that runs on the GPU then, one of NCCL's kernels included, which waits for a peer.
  void load_kernels();
  /// Each kind of layer once, with the microbatches of this run.
  void run_layers(runtime::StreamView stream) const;
  /// The first turns, while the device's memory is free; the others come when states are in it.
  void measure_peak();
  void build();
  /// Makes NCCL's communicators; blocks.
  void connect_nccl();
  /// Of the GPU's memory since before that.
  [[nodiscard]] std::size_t taken_by_nccl() const;
  void make_reporter();
  /// What actors send with.
  [[nodiscard]] runtime::Transport& transport_of_actors();
  void train();
  /// On any thread: when the run will have ended if it is asked to now, and what it saves.
  [[nodiscard]] std::string expected_end() const;
  void save();
  void collect();
  void conclude() const;
  void write_trace(const std::vector<std::string>& events);
  /// Hands `what` to the reports' stream: on rank 0, about the run, nobody waits for it.
  void report(std::function<void()> what);
  /// Hands `what` to the files' stream on any rank, then calls `done` on the loop.
  void write(std::function<void()> what, runtime::Handler done);

  runtime::MpiSession& session_;
  TrainOptions options_;
  Job job_;
  actors::TrainerOptions trainer_options_;
  bool speaks_;
  runtime::AsioLoop loop_;
  runtime::MpiTransport transport_{session_, loop_};
  std::vector<actors::RankPlan> stages_;
  std::unique_ptr<runtime::Device> device_, host_;
  bool all_reach_gpus_ = false;                     // MPI of every rank can
  bool direct_ = false;                             // MPI takes messages from the GPU's memory, and to it
  std::optional<runtime::StagedTransport> staged_;  // otherwise they go by this
  CollectivesChoice collectives_;
  PeakFlops peak_;
  std::unique_ptr<collectives::NcclLibrary> nccl_library_;
  std::string nccl_obstacle_;  // why there is none; empty: nobody asked
  std::unique_ptr<collectives::NcclColumn> nccl_;  // null: collectives are plans
  std::size_t free_before_nccl_ = 0;               // of the GPU's memory
  std::optional<actors::Rank> rank_;
  std::optional<actors::Reporter> reporter_;
  std::optional<SavedWeights> weights_;
  std::optional<actors::WeightCollector> collector_;
  std::unique_ptr<runtime::Stream> files_;    // both end before what they write with
  std::unique_ptr<runtime::Stream> reports_;  // whoever does not read the output holds up no file
  StepClock step_clock_;
  std::atomic<bool> saving_ = false;
  std::string lost_trace_;                  // why the trace was not written; empty: it was
  std::vector<RankTotals> totals_;
  std::chrono::steady_clock::time_point started_;
  double trained_seconds_ = 0;
};

/// "rank 1 (stage 1, row 0)".
[[nodiscard]] std::string describe_rank(const TrainOptions& options, int rank);

}  // namespace ranvier::apps
