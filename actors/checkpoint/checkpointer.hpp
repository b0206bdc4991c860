// Takes checkpoints during training and at its end. Loop thread only; rank 0 handles files on a host thread.
//
//   rank 0 requests → all ranks agree → states are stored → Snapshot ───────────────┐
//                                    └→ rank 0 prepares → every rank opens → CheckpointTarget
//     → every rank sends its share or failure to rank 0 → rank 0 commits or discards
//
// Several series (checkpoints, weights) each have a target and an interval. One checkpoint runs at a time. A failure on
// any rank is reported on rank 0; earlier checkpoints stay and training continues.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/checkpoint/gated_sink.hpp"
#include "actors/checkpoint/snapshot.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

/// Outcome of a checkpoint, on rank 0.
struct CheckpointResult {
  std::int64_t step = 0;
  bool last = false;          ///< last checkpoint of the run, never repeated
  std::uint64_t bytes = 0;    ///< data bytes over all ranks
  double seconds = 0;         ///< from the agreement to the commit
  double waited_seconds = 0;  ///< optimizer stall, maximum over ranks
  std::string failure;        ///< empty: the checkpoint is complete
  std::string warning;        ///< problem of a complete checkpoint; empty: none
};

struct CheckpointSeries {
  CheckpointTarget* target = nullptr;  ///< must outlive the loop's last run
  Snapshot::Selection selection;
  std::int64_t every = 0;       ///< steps between checkpoints; 0: not by steps
  runtime::Duration period{};   ///< time between starts, on rank 0's clock; 0: not by time
  bool at_end = true;           ///< take a checkpoint of the last step
  double bytes_per_second = 0;  ///< maximum write rate per rank during training; 0: no limit
  std::function<void(const CheckpointResult&)> result;  ///< on rank 0
};

class Checkpointer final : public Actor {
 public:
  /// `scalars`: returns the scalars of all actors.
  Checkpointer(const RankContext& context, Snapshot& snapshot, Optimizer& optimizer,
               std::function<std::vector<StateScalar>()> scalars);

  [[nodiscard]] const char* name() const noexcept override { return "checkpoint"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::string details() const override;

  /// Adds a series before training; the same ones in the same order on all ranks.
  void add(CheckpointSeries series) { series_.push_back({std::move(series)}); }

  /// Starts the intervals after `step`, which needs no checkpoint.
  void start(std::int64_t step);
  /// Returns the series that rank 0 requests after a step, counted from 1; 0: none, or another rank.
  [[nodiscard]] int wish(std::int64_t step) const;
  /// Starts a checkpoint of the newest step after all ranks have agreed on it and the optimizer has the decision.
  void take(int series, std::int64_t step);
  /// Ends the run after `step`, whose states are all stored: takes the final checkpoints and overdue ones; none: takes
  /// no more. `done` runs when this rank has finished, on rank 0 when all ranks have.
  void finish(std::optional<std::int64_t> step, runtime::Handler done);

 private:
  struct Series {
    CheckpointSeries options;
    std::int64_t step = 0;  // step of the last checkpoint
    runtime::Duration at{};

    [[nodiscard]] bool due_by_steps(std::int64_t now) const {
      return options.every > 0 && now / options.every > step / options.every;
    }
  };
  enum class Target { awaited, open, refused };
  /// The checkpoint in progress.
  struct Current {
    std::size_t series = 0;
    std::int64_t step = 0;
    std::vector<StateScalar> scalars;
    runtime::Duration began{};
    runtime::Duration waited_before{};
    Target opened = Target::awaited;
    bool copied = false;             // the snapshot is complete
    std::string not_prepared = {};   // failure of prepare(), on rank 0
    std::uint64_t bytes = 0;         // sum over ranks, on rank 0
    runtime::Duration max_waited{};  // maximum over ranks, on rank 0
  };
  /// Header of a rank's report to rank 0; the share's data and failure follow.
  struct Header {
    runtime::Duration waited{};
    std::uint64_t bytes = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t failure_bytes = 0;
  };
  /// Shared with pending messages, which may outlive this object.
  struct Report {
    Header header;
    CheckpointShare share;
  };

  void begin(std::size_t series, std::int64_t step);
  [[nodiscard]] CheckpointTarget& target() { return *series_[current_->series].options.target; }
  /// Runs `work` with the target on a host thread, then `done` on the loop with the text of its exception, if any.
  void on_host(const char* what, std::function<void(CheckpointTarget&)> work,
               std::function<void(std::string failure)> done);
  void prepared(std::string failure);
  void open(bool is_prepared);
  /// Closes the target once all segments are copied and taken.
  void close_if_due();
  void sent();
  void closed(CheckpointShare share);
  void receive(int rank);
  void arrived(int rank, const std::shared_ptr<Report>& report);
  void commit();
  void fail_with(std::string failure);
  void conclude(std::string failure, std::string warning);
  void over();
  void take_last();

  const RankContext* context_;
  Snapshot* snapshot_;
  Optimizer* optimizer_;
  std::function<std::vector<StateScalar>()> scalars_;
  std::vector<Series> series_;
  GatedSink gate_;
  std::unique_ptr<runtime::Stream> files_;  // rank 0

  std::optional<Current> current_;
  std::vector<std::shared_ptr<Report>> reports_;  // arrived ones, by rank, on rank 0
  int sends_ = 0;                                 // pending sends
  std::optional<std::int64_t> last_step_;         // last step of the run
  runtime::Handler finished_;
};

}  // namespace ranvier::actors
