// Optimizer states and their transfer for updates. On the device they stay with their unit. Offloaded, a bucket is one
// record (offload/bucket_layout.hpp) that passes through a few buffers (Myelin §V-B, ZeRO-Infinity §5.1.1). A record
// has master weights (if separate) and both moments. With spare copies (flip) an update writes to the other copy, and
// commit() makes it valid. Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/state_place.hpp"
#include "actors/states/state_kind.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

/// Arrays of a unit, in the order of records.
inline constexpr std::array state_array_names = {to_string(StateKind::weights), to_string(StateKind::m),
                                                 to_string(StateKind::v)};

/// Number of arrays of a unit; a frozen unit has weights only.
[[nodiscard]] constexpr std::size_t arrays_of(bool trained) { return trained ? state_array_names.size() : 1; }

class StateRecords {
 public:
  using Bucket = ChunkSchedule::Bucket;

  struct Plan {
    TierKind tier = TierKind::device;
    StepLocation step = StepLocation::device;
    std::optional<runtime::MemoryId> slots;
    std::size_t slot_bytes = 0;
    std::vector<offload::TierRegion> regions, spare;  ///< by unit
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, bool has_spare);

  StateRecords(const RankContext& context, const ModelShare& share, const Plan& plan);

  /// As Part's: of each unit the master weights and both moments in the optimizer's range, of what counts.
  [[nodiscard]] std::vector<StateArray> arrays() const;
  void read(const StateArray& array, std::size_t begin, std::span<std::byte> values, runtime::Handler done);
  void write(const StateArray& array, std::size_t begin, std::span<const std::byte> values, runtime::Handler done);

  /// An array from element `begin` of the unit on, as far as it lies together where the host reaches it; or empty.
  [[nodiscard]] std::span<float> memory(const StateArray& array, std::size_t begin) const;

  /// Copy that an update writes to.
  enum class Copy { counts, spare };

  /// A bucket's copies by number, which stays when another one counts: 0, or 1 where there is a spare copy.
  [[nodiscard]] std::size_t number_of(const Bucket& bucket, Copy copy) const;
  /// The stage of a bucket's pass in which the copy that its states go to begins to change.
  enum class Stage { fetch, compute, store };
  [[nodiscard]] Stage changes_in(Copy to) const;

  /// Where elements lie: of those from `begin` on, an element of the unit, that are in this bucket and the same finest
  /// piece: in the copy of this number of the array state_array_names[which].
  [[nodiscard]] StatePlace place(const Bucket& bucket, std::size_t copy, std::size_t which,
                                 std::size_t begin) const;

  /// Brings a bucket's states, those that count, to a slot, or states back from it to a copy; calls `done` at once
  /// where they stay.
  void fetch(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  void store(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  /// Makes the spare copy the valid one.
  void commit(const Bucket& bucket);
  /// Brings the master weights that count only; where they are separate.
  void fetch_weights(const Bucket& bucket, std::size_t slot, const runtime::Handler& done);

  /// Elements of a bucket in finest pieces that follow one another, with their states.
  struct Stretch {
    std::size_t begin = 0;   ///< first element, within the unit
    std::size_t offset = 0;  ///< offset among the bucket's elements in the optimizer's range
    std::size_t count = 0;
    runtime::StridedLayout in_unit;  ///< layout relative to `begin`
    float* weights = nullptr;
    runtime::StridedLayout weight_runs;
    float* m = nullptr;
    float* v = nullptr;
    runtime::StridedLayout moment_runs;
    bool layers_have = false;  ///< it is in layers' copies on this rank, as a whole; otherwise none of it is
  };
  /// However many pieces there are: one, or up to three where layers' copies have a part of the range.
  [[nodiscard]] std::vector<Stretch> stretches(const Bucket& bucket, std::size_t slot, Copy to) const;

 private:
  [[nodiscard]] bool on_device() const noexcept { return plan_.tier == TierKind::device; }
  [[nodiscard]] bool stays() const noexcept { return !plan_.slots; }
  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] offload::TierRegion region(const Bucket& bucket, Copy copy) const;
  /// The array from element `begin` of the unit on, where it lies with its unit; null: it is in records.
  [[nodiscard]] std::byte* beside_unit(std::size_t unit, std::size_t which, std::size_t begin) const;
  /// Of state_array_names.
  [[nodiscard]] static std::size_t which_of(const StateArray& array, const UnitState& unit);
  /// The bucket that has an element of the unit, and how many from there on follow one another in it.
  [[nodiscard]] std::pair<Bucket, std::size_t> bucket_of(std::size_t unit, std::size_t element) const;
  /// Where that element is in the record of its bucket, in bytes.
  [[nodiscard]] std::size_t record_place(const Bucket& bucket, std::size_t which, std::size_t begin) const;
  /// Where the bucket's record lies for the step.
  [[nodiscard]] std::byte* record(const Bucket& bucket, std::size_t slot, Copy to) const;
  void bring(const Bucket& bucket, std::span<std::byte> to, const runtime::Handler& done);
  /// Blocks of the bucket's record that counts, from byte `offset` of it on.
  void move_blocks(const Bucket& bucket, std::size_t offset, std::span<std::byte> memory, bool stores,
                   const runtime::Handler& done);

  /// Elements of an array on their way to memory of the host, or from there.
  struct Access {
    StateArray array;
    std::size_t begin = 0;  // in the unit
    std::byte* values = nullptr;
    std::size_t count = 0;  // elements
    bool writes = false;
    runtime::Handler done;
  };
  void access(Access access);
  void access_record(Access access, std::size_t which);
  /// Between `state` and the first `count` values, then calls `next`.
  void copy(const Access& access, float* state, std::size_t count, runtime::Handler next);

  runtime::EventLoop* loop_;
  offload::Tiers* tiers_;
  runtime::StreamView compute_;
  const runtime::Arena* arena_;
  const runtime::Device* device_;
  const UnitStates* states_;
  Plan plan_;
  std::vector<offload::BucketLayout> layouts_;  // by unit
  std::vector<std::vector<bool>> flipped_;      // by unit and bucket: the spare copy is valid
};

}  // namespace ranvier::actors
