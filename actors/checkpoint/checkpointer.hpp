// Takes checkpoints while a training goes on, and one at its end.
//
//   rank 0 wishes → all ranks agree on it with a step → its states are stored → Snapshot ───┐
//                                           └→ rank 0 prepares the target → every rank opens it → CheckpointTarget
//     → every rank tells rank 0 what it wrote, or why not → rank 0 makes a whole of it
//
// What rank 0 does to files it does on a thread of the host. The snapshot begins meanwhile.
//
// There may be several series, each with a target and a period of its own (checkpoints to go on from, weights for
// others). One is under way at a time: what is due meanwhile begins with a step after, the series that is due most
// seldom first. A checkpoint that fails on any
// rank is reported on rank 0 and leaves earlier ones as they are; training continues. Loop thread only.
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

/// What became of one, as rank 0 knows it.
struct CheckpointResult {
  std::int64_t step = 0;
  bool last = false;          ///< of this run: no later one replaces it
  std::uint64_t bytes = 0;    ///< of data, over all ranks
  double seconds = 0;         ///< from the agreement on the step to the whole
  double waited_seconds = 0;  ///< that steps waited for buckets that were not copied, where it was most
  std::string failure;        ///< why there is none; empty: it is whole
  std::string warning;        ///< what went wrong all the same; empty: nothing
};

struct CheckpointSeries {
  CheckpointTarget* target = nullptr;  ///< outlives the loop's last run
  Snapshot::Selection selection;
  std::int64_t every = 0;                               ///< steps; 0: not by their number
  runtime::Duration period{};                           ///< likewise, since the last one began, as rank 0 sees it
  bool at_end = true;                                   ///< one of the last step
  double bytes_per_second = 0;                          ///< that a rank writes at most while it trains; 0: any
  std::function<void(const CheckpointResult&)> result;  ///< on rank 0
};

class Checkpointer final : public Actor {
 public:
  /// `scalars`: those of all parts.
  Checkpointer(const RankContext& context, Snapshot& snapshot, Optimizer& optimizer,
               std::function<std::vector<StateScalar>()> scalars);

  [[nodiscard]] const char* name() const noexcept override { return "checkpoint"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::string details() const override;

  /// Before the training; the same ones in the same order on all ranks.
  void add(CheckpointSeries series) { series_.push_back({std::move(series)}); }

  /// The training goes on after `step`, of which there is a checkpoint, or nothing to save.
  void start(std::int64_t step);
  /// After a step: the series that rank 0 wishes a checkpoint of, counted from 1, or 0; 0 on other ranks.
  [[nodiscard]] int wish(std::int64_t step) const;
  /// All ranks agreed on it, and the optimizer was told what becomes of the step, which is the newest one.
  void take(int series, std::int64_t step);
  /// In this run nothing follows `step`, all of whose states are stored: takes what is wanted of it, and what is due by
  /// now and was not begun; none: it is to be forgotten. `done` runs once nothing of this rank is under way; on rank 0
  /// also nothing of others.
  void finish(std::optional<std::int64_t> step, runtime::Handler done);

 private:
  struct Series {
    CheckpointSeries options;
    std::int64_t step = 0;  // that the last one was begun at
    runtime::Duration at{};

    [[nodiscard]] bool due_by_steps(std::int64_t now) const {
      return options.every > 0 && now / options.every > step / options.every;
    }
  };
  /// The one that is under way.
  struct Current {
    std::size_t series = 0;
    std::int64_t step = 0;
    std::vector<StateScalar> scalars;
    runtime::Duration began{};
    runtime::Duration waited_before{};
  };
  /// What a rank tells rank 0: this, then the share's data and failure.
  struct Header {
    std::int64_t step = 0;
    runtime::Duration waited{};
    std::uint64_t bytes = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t failure_bytes = 0;
  };
  /// Shared with receives that the transport may still hold when this is gone.
  struct Arriving {
    Header header;
    CheckpointShare share;
    bool here = false;
  };
  /// Rank 0 tells whether the target is prepared.
  struct Go {
    std::int64_t step = 0;
    std::int64_t prepared = 0;
  };
  /// Likewise, with sends.
  struct Leaving {
    Header header;
    CheckpointShare share;
  };

  void begin(std::size_t series, std::int64_t step);
  [[nodiscard]] CheckpointTarget& target() { return *series_[current_->series].options.target; }
  /// Runs `work` with the target on a thread of the host, then `done` on the loop with what it threw, if anything.
  void on_host(const char* what, std::function<void(CheckpointTarget&)> work,
               std::function<void(std::string failure)> done);
  void prepared(std::string failure);
  void open(bool is_prepared);
  /// Once all is copied, and put.
  void close_if_due();
  void sent();
  void closed(CheckpointShare share);
  void tell_rank_0(CheckpointShare share);
  [[nodiscard]] runtime::Duration waited() const { return snapshot_->waited() - current_->waited_before; }
  void receive(int rank);
  void arrived(int rank, const std::shared_ptr<Arriving>& arriving);
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
  enum class Target { awaited, open, refused };
  Target opened_ = Target::awaited;
  bool copied_ = false;                              // its snapshot is taken
  std::string not_prepared_;                         // why it fails, on rank 0
  std::vector<std::shared_ptr<Arriving>> arriving_;  // by rank, on rank 0
  std::size_t shares_missing_ = 0;
  std::uint64_t bytes_ = 0;                // that ranks wrote, likewise
  runtime::Duration max_waited_{};         // of them, likewise
  int sends_ = 0;                          // under way
  std::optional<std::int64_t> last_step_;  // nothing follows it in this run
  runtime::Handler finished_;
};

}  // namespace ranvier::actors
