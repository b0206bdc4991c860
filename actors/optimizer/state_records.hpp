// Optimizer states and their transfer for updates. On the device they stay with their unit. Offloaded, a bucket is one
// record (states/shard_records.hpp) that passes through a few buffers (Myelin §V-B, ZeRO-Infinity §5.1.1). A record
// has master weights (if separate) and the optimizer's moments. With spare copies (flip) an update writes to the other
// copy, and commit() makes it valid; states on the device have no spare copies. Parameters are read here, too. Loop
// thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "actors/states/shard_records.hpp"
#include "offload/bucket_pipeline.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Consecutive elements of a unit's optimizer states that this rank has, on any tier.
struct StateArray {
  std::size_t unit = 0;  ///< index in the stage
  StateKind kind = StateKind::weights;
  collectives::Range range;  ///< elements of the unit
};

class StateRecords {
 public:
  using Bucket = ChunkSchedule::Bucket;

  struct Plan {
    std::optional<runtime::MemoryId> slots;
    std::size_t slot_bytes = 0;
    /// By unit, without elements if its states are on the device. Empty if all are; `spare` without spare copies.
    std::vector<ShardRecords> states, spare;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, bool has_spare);

  /// `parameters` is null if all are on the device.
  StateRecords(const RankContext& context, const ModelShare& share, const Plan& plan,
               const OffloadedParameters* parameters = nullptr);

  /// The valid master weights and moments in the optimizer's range, per unit; several ranges if v has gaps.
  [[nodiscard]] std::vector<StateArray> arrays() const;
  /// A copy of elements of an array to host memory (read) or from it (write). Offloaded parameters are only read.
  struct Access {
    offload::IoKind kind = offload::IoKind::read;
    std::size_t unit = 0;
    StateKind array = StateKind::weights;  ///< or parameters
    std::size_t begin = 0;                 ///< first element, within the unit; a block's first for int8
    std::span<std::byte> values;           ///< complete elements or blocks
    runtime::Handler done;
    std::span<std::byte> staging = {};  ///< pinned, two blocks larger than `values`; for parameters in files
  };
  /// Calls `done` on the loop after this returned. One call at a time.
  void access(Access access);

  /// Contiguous host-accessible memory of an array in fp32, starting at element `begin` of the unit; may be empty.
  [[nodiscard]] std::span<float> memory(const StateArray& array, std::size_t begin) const;

  /// Returns whether the bucket's states are on the device: updated in place there, without a slot or a spare copy.
  [[nodiscard]] bool on_device(const Bucket& bucket) const {
    return states_->all()[bucket.unit].optimizer_on_device();
  }

  /// Copy that an update writes to.
  enum class Copy { counts, spare };

  /// Number of a copy, which stays the same if the other copy becomes valid: 0, or 1 with a spare copy.
  [[nodiscard]] std::size_t number_of(const Bucket& bucket, Copy copy) const;
  /// First stage of a bucket's pass that changes the destination copy.
  [[nodiscard]] offload::BucketStages::Stage offload::BucketStages::* changes_in(const Bucket& bucket,
                                                                                 Copy to) const;

  /// Location of elements starting at `begin` (an element of the unit), up to the end of their bucket and finest shard.
  /// `copy`: number of the copy.
  [[nodiscard]] StateLocation place(std::size_t unit, std::size_t copy, StateKind kind, std::size_t begin) const;

  /// Fetches a bucket's valid states to a slot, or stores them from it to a copy. Calls `done` at once if they are
  /// updated in place.
  void fetch(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  void store(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  void commit(const Bucket& bucket);
  /// Fetches the valid master weights only, or stores them. Calls `done` at once if they are not separate.
  void move_weights(offload::IoKind kind, const Bucket& bucket, std::size_t slot, const runtime::Handler& done);

  /// Memory of a bucket's elements of an array for the update, starting at `begin` (an element of the unit): in unit
  /// order on the device, in bucket order in records. Null if the optimizer lacks the array.
  [[nodiscard]] std::byte* operand(const Bucket& bucket, std::size_t slot, Copy to, StateKind kind,
                                   std::size_t begin) const;

 private:
  /// Returns whether updates need no slot: states are on the device, or in host memory and updated there.
  [[nodiscard]] bool stays(const Bucket& bucket) const { return !plan_.slots || on_device(bucket); }
  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] const ShardRecords& records(const Bucket& bucket, Copy copy) const;
  /// Location of elements of an array: on the device, or in records.
  struct Elements {
    std::byte* on_device = nullptr;
    const ShardRecords* records = nullptr;
    ShardRecords::Run run = {};
  };
  /// Elements starting at `begin`; `copy`: number of the copy, the valid one by default.
  [[nodiscard]] Elements find(std::size_t unit, StateKind kind, std::size_t begin,
                              std::optional<std::size_t> copy = std::nullopt) const;
  /// Index of an array in records.
  [[nodiscard]] std::size_t array_of(StateKind kind) const;
  /// Memory of the bucket's record for the update.
  [[nodiscard]] std::byte* record(const Bucket& bucket, std::size_t slot, Copy to) const;

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  const OffloadedParameters* parameters_;
  std::vector<std::vector<bool>> flipped_;  // by unit and bucket: the spare copy is valid
};

}  // namespace ranvier::actors
