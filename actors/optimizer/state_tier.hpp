// Where each bucket's optimizer states lie, and how they come to the step: on the device they stay with their unit; in
// host memory or in files what a bucket needs lies together as one record (offload/bucket_layout.hpp), run after run of
// every finest piece, and passes through a few slots (Myelin §V-B, ZeRO-Infinity §5.1.1). For steps on the host those
// are pinned, and what is in host memory stays where it is. A record has the master weights and both moments, or the
// moments only where layers read the master weights themselves.
//
// With Commit::flip each record has two copies, of which one counts: a step goes ahead into the spare one, and
// commit() has that count from then on. Loop thread only.
#pragma once

#include "actors/states/unit_states.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class StateTier {
 public:
  using Bucket = ChunkSchedule::Bucket;

  struct Memory {
    std::optional<runtime::MemoryId> slots;
    std::optional<runtime::MemoryId> values;  ///< pinned: what a source fills
    std::size_t slot_bytes = 0;
    std::vector<offload::TierRegion> regions, spare;  ///< by unit
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const TierOptions& options, offload::TierPlan& tiers,
                                   runtime::MemoryPlan& plan);

  /// All references outlive this.
  StateTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView compute, const UnitStates& states,
            const TierOptions& options, const Memory& memory, const runtime::Arena& arena);

  /// Values of elements [begin, begin + out.size()) of a unit.
  using Source = std::function<void(const models::UnitSpec& unit, std::size_t begin, std::span<float> out)>;
  /// Fills master weights that live off the device; once, before anything else.
  void load(Source weights, runtime::Handler done);

  /// The copy that a step leaves its states in.
  enum class Copy { counts, spare };

  /// Brings a bucket's states, those that count, to a slot, or states back from it to a copy; calls `done` at once
  /// where they stay.
  void fetch(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  void store(const Bucket& bucket, std::size_t slot, Copy to, const runtime::Handler& done);
  /// What the spare copy has counts from now on.
  void commit(const Bucket& bucket);
  /// Brings the master weights that count only; where they are separate.
  void fetch_weights(const Bucket& bucket, std::size_t slot, const runtime::Handler& done);

  /// Elements of a bucket that follow one another in the unit, with their states.
  struct Run {
    collectives::Range range;
    std::size_t offset = 0;  ///< of the first, counted through the bucket's elements in the optimizer's range
    float* weights = nullptr;
    float* m = nullptr;
    float* v = nullptr;
  };
  /// Each is one that layers' copies on this rank have as a whole, or none of it.
  [[nodiscard]] std::vector<Run> runs(const Bucket& bucket, std::size_t slot, Copy to) const;

  /// Copies master weights [begin, begin + out.size()), which lie in the optimizer's range; between steps.
  void read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

 private:
  [[nodiscard]] bool on_device() const noexcept { return options_.optimizer == TierKind::device; }
  [[nodiscard]] bool stays() const noexcept { return !memory_.slots; }
  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] offload::TierRegion region(const Bucket& bucket, Copy copy) const;
  /// Where the bucket's record lies for the step.
  [[nodiscard]] std::byte* record(const Bucket& bucket, std::size_t slot, Copy to) const;
  void bring(const Bucket& bucket, std::span<std::byte> to, const runtime::Handler& done);
  void load_next(std::size_t unit, std::size_t bucket);

  runtime::EventLoop* loop_;
  offload::Tiers* tiers_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  TierOptions options_;
  Memory memory_;
  const runtime::Arena* arena_;
  std::vector<offload::BucketLayout> layouts_;  // by unit
  std::vector<std::vector<bool>> flipped_;      // by unit and bucket: `spare` counts
  Source weights_;
  runtime::Handler loaded_;
};

}  // namespace ranvier::actors
