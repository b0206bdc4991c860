// Accumulated gradients that live off the device, in host memory or in files (ZeRO-Infinity §5.1.1): for each use of
// each unit the range that the scope of gradients gives this rank, as records of the unit's buckets (unit_cut.hpp), in
// a record one run for each finest piece. Sums are those of accumulators on the device, microbatch after microbatch:
//
//   sharded     what arrives is added, several stretches of records at a time through a few slots: accumulate()
//   otherwise   layers add to the sum themselves, as a product goes on with what is there: bring(), then keep()
//
// After the last microbatch buckets go through the device once more. Reduced gradients wait here until the step counts;
// if every step does, on the device. A step on the host reads them from here, unless other ranks' are gathered first.
//
// Loop thread only; handlers run on the loop, after the call returned.
#pragma once

#include "actors/rank/rank_context.hpp"
#include "actors/rank/actor.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::actors {

class GradientRecords final : public Actor {
 public:
  struct Plan {
    std::optional<runtime::MemoryId> slots;
    std::size_t slot_bytes = 0;
    std::size_t slot_count = 0;
    std::vector<std::vector<offload::TierRegion>> regions;  ///< by unit and use; none where gradients stay
    bool stepped_in_place = false;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);
  /// Whether the optimizer's step reads reduced gradients in host memory, as store_reduced() leaves them.
  [[nodiscard]] static bool stepped_in_place(const PlanContext& planner);

  GradientRecords(const RankContext& context, const ModelShare& share, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "gradients"; }

  // `place` is a whole unit in device memory, of which only the range of gradients counts; it stays as it is until
  // `done` runs. Calls for one use happen in their order, several uses side by side.

  /// Adds a microbatch's gradients, which are complete. `first` overwrites what the batch before left. Where
  /// gradients are sharded.
  void accumulate(std::size_t unit, std::size_t use, std::byte* place, bool first, runtime::Handler done);
  /// Brings the sum to `place`.
  void bring(std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done);
  /// Overwrites the sum.
  void keep(std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done);

  // After the batch, when the calls above are over for the use. Device memory has room for whole blocks.

  /// Elements [begin, end) of a bucket: the cut's elements of the range of gradients, run after run.
  struct Stretch {
    std::size_t bucket = 0;
    std::size_t begin = 0, end = 0;

    [[nodiscard]] std::size_t elements() const noexcept { return end - begin; }
  };
  /// All of a unit, in stretches of at most so many bytes, whole blocks, in one order wherever it is cut alike.
  [[nodiscard]] std::vector<Stretch> stretches(std::size_t unit, std::size_t bytes) const;
  [[nodiscard]] Stretch bucket(std::size_t unit, std::size_t bucket) const;
  void fetch(std::size_t unit, std::size_t use, const Stretch& stretch, std::byte* to, runtime::Handler done);
  void store(std::size_t unit, std::size_t use, const Stretch& stretch, std::byte* from, runtime::Handler done);

  /// Keeps a bucket of what is left after the batch's reduction, the cut's elements of the range `reduced`, where
  /// the bucket of use 0 was, which is of no more worth.
  void store_reduced(std::size_t unit, std::size_t bucket, std::byte* from, runtime::Handler done);
  /// Leaves it on the device for the next fetch_reduced() of that bucket, at `from` until `returned` runs.
  void lend_reduced(std::size_t unit, std::size_t bucket, const std::byte* from, runtime::Handler returned);
  void fetch_reduced(std::size_t unit, std::size_t bucket, std::byte* to, runtime::Handler done);
  [[nodiscard]] bool stepped_in_place() const noexcept { return plan_.stepped_in_place; }
  /// The bucket's reduced gradients in host memory, if stepped_in_place().
  [[nodiscard]] const std::byte* reduced(std::size_t unit, std::size_t bucket) const;

 private:
  /// A call for a whole use.
  struct Call {
    enum class Kind { add, bring, keep };
    Kind kind = Kind::add;
    std::byte* place = nullptr;
    runtime::Handler done;
    std::size_t missing = 0;  // stretches
  };
  struct StretchOfUse {
    std::size_t unit = 0, use = 0;
    Stretch stretch;
  };
  struct Lent {
    const std::byte* from = nullptr;
    runtime::Handler returned;
  };

  [[nodiscard]] collectives::Range range(std::size_t unit) const;
  [[nodiscard]] std::size_t offset(std::size_t unit, const Stretch& stretch) const;
  void call(std::size_t unit, std::size_t use, Call call);
  void start(std::size_t unit, std::size_t use);
  void move_records(std::size_t unit, std::size_t use);
  void start_stretches();
  void move(const StretchOfUse& part, std::byte* memory, bool fetches, runtime::Handler done);
  void add(const StretchOfUse& part, std::byte* slot);
  void stretch_done(std::size_t unit, std::size_t use);

  runtime::EventLoop* loop_;
  offload::Tiers* tiers_;
  runtime::StreamView stream_;
  const UnitStates* states_;
  Plan plan_;
  std::size_t width_;                           // bytes of an element
  std::vector<offload::BucketLayout> layouts_;  // by unit
  std::vector<std::byte*> free_slots_;
  std::deque<StretchOfUse> waiting_;                          // for a slot
  std::vector<std::vector<std::deque<Call>>> calls_;          // by unit and use; the front ones are under way
  std::map<std::pair<std::size_t, std::size_t>, Lent> lent_;  // by unit and bucket
};

}  // namespace ranvier::actors
