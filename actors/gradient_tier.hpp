// Accumulated gradients that live off the device, in host memory or in files (ZeRO-Infinity §5.1.1): for each use
// of each unit the range that the scope of gradients gives this rank, as records of the unit's buckets
// (unit_cut.hpp), in a record one run for each finest piece. A microbatch's gradients are added in fetch → add →
// store, piece by piece through a few slots on the device, several pieces at a time. Every element's sum is that of
// accumulators on the device, microbatch after microbatch. Loop thread only; handlers run on the loop, after the
// call returned.
//
//   tier.accumulate(unit, use, place, microbatch == 0, [] { … });  // layers may write to the place again
//   tier.fetch(unit, use, bucket, to, [] { … });                   // after the batch's last microbatch
//   tier.store_reduced(unit, bucket, from, [] { … });              // what is left of it after the reduction
//   tier.fetch_reduced(unit, bucket, to, [] { … });                // once the step counts
#pragma once

#include "actors/unit_states.hpp"
#include "offload/tiers.hpp"

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::actors {

class GradientTier {
 public:
  struct Memory {
    std::optional<runtime::MemoryId> slots;
    std::size_t slot_bytes = 0;
    std::size_t slot_count = 0;
    std::vector<std::vector<offload::TierRegion>> regions;  ///< by unit and use; none where gradients stay
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const TierOptions& options, offload::TierPlan& tiers,
                                   runtime::MemoryPlan& plan);

  /// `stream` adds. All references outlive this.
  GradientTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView stream,
               const UnitStates& states, const Memory& memory, const runtime::Arena& arena);

  /// Adds a microbatch's gradients of a use, complete in device memory at `place`, a whole unit of which only the
  /// range of gradients counts. `first` overwrites what the batch before left. Those of one use are added in the
  /// order of the calls, several uses side by side. `place` stays as it is until `done` runs.
  void accumulate(std::size_t unit, std::size_t use, std::byte* place, bool first, runtime::Handler done);

  /// Brings a bucket of a use: the cut's elements of the range of gradients, run after run. When nothing is being
  /// added to that use.
  void fetch(std::size_t unit, std::size_t use, std::size_t bucket, std::byte* to, runtime::Handler done);

  /// Keeps a bucket of what is left after the batch's reduction, the cut's elements of the range `reduced`, where
  /// the bucket of use 0 was, which is of no more worth.
  void store_reduced(std::size_t unit, std::size_t bucket, std::byte* from, runtime::Handler done);
  void fetch_reduced(std::size_t unit, std::size_t bucket, std::byte* to, runtime::Handler done);

  /// Whether the stream has additions to do. Transfers are counted by Tiers.
  [[nodiscard]] bool adding() const noexcept { return adding_ > 0; }

 private:
  /// A call of accumulate().
  struct Addition {
    std::byte* place = nullptr;
    bool first = false;
    runtime::Handler done;
    std::size_t missing = 0;  // pieces
  };
  /// A part of a record that fits a slot: elements [begin, end) of the record.
  struct Piece {
    std::size_t unit = 0, use = 0, bucket = 0;
    std::size_t begin = 0, end = 0;
  };

  [[nodiscard]] collectives::Range range(std::size_t unit) const;
  [[nodiscard]] std::size_t offset(const Piece& piece) const;
  void start(std::size_t unit, std::size_t use);
  void store_first(std::size_t unit, std::size_t use);
  void start_pieces();
  void add(const Piece& piece, std::byte* slot);
  void piece_done(const Piece& piece);

  runtime::EventLoop* loop_;
  offload::Tiers* tiers_;
  runtime::StreamView stream_;
  const UnitStates* states_;
  Memory memory_;
  std::size_t width_;                           // bytes of an element
  std::vector<offload::BucketLayout> layouts_;  // by unit
  std::vector<std::byte*> free_slots_;
  std::deque<Piece> waiting_;                                 // for a slot
  std::vector<std::vector<std::deque<Addition>>> additions_;  // by unit and use; the front ones are under way
  int adding_ = 0;                                            // pieces on the stream
};

}  // namespace ranvier::actors
