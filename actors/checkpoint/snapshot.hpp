// Copies this rank's states after a step while the passes of the next step run. Loop thread only.
//
//   states (device, host memory, files) → staging (pinned, of fixed size) → hash → StateSink
//
// States change only in the optimizer's phase. An update of a bucket that is not copied yet waits for that bucket,
// which is copied next; with spare copies (flip) only the second update waits. Each rank copies the finest shard of its
// units, so one rank copies each element. Frozen units need no wait.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "runtime/device/slot_pool.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

class Snapshot final : public Actor {
 public:
  /// Set of arrays, by index in optimizer_states.
  using Arrays = std::bitset<optimizer_states.size()>;
  static constexpr Arrays all_arrays = 0b111;
  static constexpr Arrays weights_only = 0b001;

  /// States to copy.
  struct Selection {
    Arrays arrays = all_arrays;
    bool frozen = true;  ///< include frozen units
  };

  struct Options {
    std::size_t staging_bytes = std::size_t{32} << 20;
    std::vector<bool> writes;  ///< by unit of the stage; false for tied units that another stage copies
  };
  struct Plan {
    runtime::SlotPool::Plan staging;  ///< no slots: nothing is copied
    /// All segments that this rank copies, by bucket, in the order of updates.
    std::vector<StatePiece> pieces;
    struct Bucket {
      ChunkSchedule::Bucket bucket;
      std::size_t begin = 0, end = 0;  ///< range in `pieces`
    };
    std::vector<Bucket> buckets;
  };
  /// Call it after the optimizer's plan.
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options, const Optimizer::Plan& optimizer);

  Snapshot(const RankContext& context, const ModelShare& share, const Plan& plan, Optimizer& optimizer);
  ~Snapshot() override;

  [[nodiscard]] const char* name() const noexcept override { return "snapshot"; }
  [[nodiscard]] std::string details() const override;

  /// Starts to copy the selected states. Call it when they do not change (Optimizer::when_stored). `done` runs on the
  /// loop when the sink has taken all segments; the sink must stay until then. One at a time.
  void begin(Selection selection, StateSink& sink, runtime::Handler done);
  [[nodiscard]] bool under_way() const noexcept { return sink_ != nullptr; }

  /// Total optimizer stall so far.
  [[nodiscard]] runtime::Duration waited() const noexcept { return waited_; }

 private:
  /// Progress of a bucket in the current snapshot.
  struct BucketCopy {
    std::size_t copy = 0;     // index of the spare copy to read
    std::size_t next = 0;     // next segment
    std::size_t missing = 0;  // segments that are not copied
    runtime::Handler waits;   // waiting update; null: none
  };

  /// The optimizer's guard.
  void before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go);
  [[nodiscard]] bool wants(const StatePiece& piece) const;
  void copy_ahead();
  /// Copies the bucket's next segment; false: there is none.
  [[nodiscard]] bool copy_next(std::size_t bucket);
  void copy(BucketCopy& bucket, std::size_t piece, const runtime::SlotPool::Slot& slot);
  /// The segment starts at byte `begin` of the slot.
  void copied(BucketCopy& bucket, std::size_t piece, const runtime::SlotPool::Slot& slot, std::size_t begin);
  void put(std::size_t piece, const runtime::SlotPool::Slot& slot, std::uint64_t hash);
  [[nodiscard]] std::span<std::byte> blocks(std::size_t piece, const runtime::SlotPool::Slot& slot) const;

  const RankContext* context_;
  const UnitStates* states_;
  const Optimizer* optimizer_;
  Plan plan_;
  std::unique_ptr<runtime::Stream> copies_, hashes_;
  std::vector<std::vector<std::size_t>> number_of_;  // by unit and bucket: index in plan_.buckets

  StateSink* sink_ = nullptr;  // null: no snapshot in progress
  runtime::Handler done_;
  Selection selection_;
  std::vector<BucketCopy> buckets_;
  std::deque<std::size_t> urgent_;  // buckets with waiting updates
  std::size_t next_bucket_ = 0;
  std::size_t put_missing_ = 0;  // segments that the sink has not taken
  runtime::SlotPool slots_;
  std::size_t waiting_ = 0;  // buckets with waiting updates
  runtime::Duration waits_since_{};
  runtime::Duration waited_{};
};

}  // namespace ranvier::actors
