// Accumulated gradients in host memory or files (ZeRO-Infinity §5.1.1): this rank's range of each tied use of each
// unit, stored as records of buckets (bucket_partition.hpp). Sums have the same bits as on the device. Loop thread
// only; handlers run on the loop, after the call returned.
//
//   sharded     received gradients go through a few device buffers: Call::store for a batch's first microbatch, then
//               Call::add
//   otherwise   layers add to the sum themselves: Call::fetch, then Call::store
//
// Reduced gradients are stored here until the step is committed, or stay on the device if every step is applied.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/shard_records.hpp"
#include "runtime/device/slot_pool.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace ranvier::actors {

class OffloadedGradients final : public Actor {
 public:
  struct Plan {
    runtime::SlotPool::Plan slots;
    std::vector<std::vector<ShardRecords>> records;  ///< by unit and tied use; empty if gradients are on the device
    bool stepped_in_place = false;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);
  /// Returns whether updates of offloaded states on the host read reduced gradients in place, as stored by
  /// store_reduced().
  [[nodiscard]] static bool stepped_in_place(const PlanContext& planner);

  OffloadedGradients(const RankContext& context, const ModelShare& share, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "gradients"; }

  enum class Call {
    add,    ///< adds a microbatch's complete gradients to the sum; for sharded gradients
    fetch,  ///< fetches the sum
    store,  ///< overwrites the sum, including the sum of the previous batch
  };
  /// `place` is a complete unit in device memory; only its range of gradients is used. It must stay unchanged until
  /// `done`. Calls for one tied use run in order; different uses run in parallel.
  void call(Call kind, std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done);

  // After the batch, when the calls above have finished for the tied use. Device buffers have space for whole blocks.

  /// Elements [begin, end) of a bucket, in bucket order of the range of gradients.
  struct Stretch {
    std::size_t bucket = 0;
    std::size_t begin = 0, end = 0;

    [[nodiscard]] std::size_t elements() const noexcept { return end - begin; }
  };
  /// Divides a unit into stretches of at most `bytes`, in whole blocks; equal partitions have equal order.
  [[nodiscard]] std::vector<Stretch> stretches(std::size_t unit, std::size_t bytes) const;
  [[nodiscard]] Stretch bucket(std::size_t unit, std::size_t bucket) const;
  void move(offload::IoKind kind, std::size_t unit, std::size_t use, const Stretch& stretch, std::byte* memory,
            runtime::Handler done);

  /// Stores the reduced gradients of a bucket (its elements in UnitState::reduced) in the record of tied use 0, which
  /// is no longer needed.
  void store_reduced(std::size_t unit, std::size_t bucket, std::byte* from, runtime::Handler done);
  /// Keeps the bucket on the device, at `from`, for the next fetch_reduced(), until `returned` runs.
  void lend_reduced(std::size_t unit, std::size_t bucket, const std::byte* from, runtime::Handler returned);
  void fetch_reduced(std::size_t unit, std::size_t bucket, std::byte* to, runtime::Handler done);
  [[nodiscard]] bool stepped_in_place() const noexcept { return plan_.stepped_in_place; }
  /// The same for a unit: states on the device are updated there.
  [[nodiscard]] bool stepped_in_place(std::size_t unit) const {
    return plan_.stepped_in_place && !states_->all()[unit].optimizer_on_device();
  }
  /// Reduced gradients of the bucket in host memory, if stepped_in_place(unit).
  [[nodiscard]] const std::byte* reduced(std::size_t unit, std::size_t bucket) const;

 private:
  struct Lent {
    const std::byte* from = nullptr;
    runtime::Handler returned;
  };

  [[nodiscard]] const ShardRecords& records(std::size_t unit, std::size_t use = 0) const {
    return plan_.records.at(unit).at(use);
  }
  [[nodiscard]] collectives::Range range(std::size_t unit) const;
  void start(Call kind, std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done);
  void move_blocks(offload::IoKind kind, std::size_t unit, std::size_t use, const Stretch& stretch,
                   std::byte* memory, runtime::Handler done);

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  std::size_t width_;  // bytes per element
  runtime::SlotPool slots_;
  std::vector<std::vector<std::deque<runtime::Handler>>> calls_;  // by unit and tied use; the front ones are active
  std::map<std::pair<std::size_t, std::size_t>, Lent> lent_;      // by unit and bucket
};

}  // namespace ranvier::actors
