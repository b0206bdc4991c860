// The states of this rank as a step left them, copied while the passes of the next one run.
//
//   states (device, host memory, files) → staging (pinned, of fixed size) → hash → StateSink
//
// States change in the optimizer's phase only, so most of the copying is beside passes. Where the optimizer is about to
// change a bucket that is not copied, it waits for that bucket alone, which is copied next (CheckFreq's snapshot waits
// for all of it). With spare copies that count by flipping, a bucket may change twice before that. Every rank copies
// the finest piece of its units, whatever the scopes: so replicas share the work, and each element is copied by one
// rank of the job. Of frozen units there are the parameters as layers read them, which nothing has to wait for. Loop
// thread only.
#pragma once

#include "actors/checkpoint/state_sink.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "actors/optimizer/copy_on_write_guard.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

class Snapshot final : public Actor, public CopyOnWriteGuard {
 public:
  /// Of state_array_names.
  using Arrays = std::bitset<state_array_names.size()>;
  static constexpr Arrays all_arrays = 0b111;
  static constexpr Arrays weights_only = 0b001;

  /// What of the states is copied.
  struct Selection {
    Arrays arrays = all_arrays;
    bool frozen = true;  ///< units that no step changes, too
  };

  struct Options {
    std::size_t staging_bytes = std::size_t{32} << 20;
    std::vector<bool> writes;  ///< by unit of the stage: not so where another stage, which has it too, does
  };
  struct Plan {
    std::optional<runtime::MemoryId> staging;  ///< none: nothing is copied
    std::size_t slot_bytes = 0, slots = 0;
    /// All that this rank copies, the same in every run: bucket after bucket, in the order in which steps change them.
    std::vector<StatePiece> pieces;
    struct Bucket {
      ChunkSchedule::Bucket bucket;
      std::size_t begin = 0, end = 0;  ///< of its pieces
    };
    std::vector<Bucket> buckets;
  };
  /// Once the optimizer's plan is made.
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options, const Optimizer::Plan& optimizer);

  /// `parameters` is null where they live on the device.
  Snapshot(const RankContext& context, const ModelShare& share, const Plan& plan, Optimizer& optimizer,
           const ParameterRecords* parameters);
  ~Snapshot() override;

  [[nodiscard]] const char* name() const noexcept override { return "snapshot"; }
  [[nodiscard]] std::string details() const override;

  /// Begins to copy what is selected as it is now, so call it where none of it is changing (Optimizer::when_stored).
  /// `done` runs on the loop when the sink has taken all of it. One at a time; the sink stays until `done`.
  void begin(Selection selection, StateSink& sink, runtime::Handler done);
  [[nodiscard]] bool under_way() const noexcept { return sink_ != nullptr; }

  /// How long steps have waited for buckets so far.
  [[nodiscard]] runtime::Duration waited() const noexcept { return waited_; }

  void before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) override;

 private:
  /// Of the run that is under way.
  struct BucketCopy {
    std::size_t copy = 0;     // that is copied
    std::size_t next = 0;     // piece to begin with
    std::size_t missing = 0;  // pieces that are not copied
    runtime::Handler waits;   // null: nothing
  };

  [[nodiscard]] bool wants(const StatePiece& piece) const;
  void copy_ahead();
  /// The next piece to copy, if there is one.
  [[nodiscard]] std::optional<std::size_t> next_piece();
  [[nodiscard]] std::optional<std::size_t> next_of(std::size_t bucket);
  void copy(std::size_t piece, std::size_t slot);
  [[nodiscard]] StatePlace place_of(std::size_t bucket, const StatePiece& piece) const;
  void copied(std::size_t piece, std::size_t slot, std::size_t begin);
  void put(std::size_t piece, std::size_t slot);
  void go_on(BucketCopy& bucket);
  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] std::span<std::byte> blocks(std::size_t piece, std::size_t slot) const;

  const RankContext* context_;
  const UnitStates* states_;
  const StateRecords* records_;
  const ParameterRecords* parameters_;
  Plan plan_;
  std::unique_ptr<runtime::Stream> copies_, hashes_;
  std::vector<std::vector<std::size_t>> number_of_;  // by unit and index: of plan_.buckets
  std::vector<std::size_t> bucket_of_;               // by piece

  StateSink* sink_ = nullptr;  // null: nothing is under way
  runtime::Handler done_;
  Selection selection_;
  std::vector<BucketCopy> buckets_;
  std::deque<std::size_t> urgent_;  // buckets that steps wait for
  std::size_t next_bucket_ = 0;
  std::size_t put_missing_ = 0;  // pieces that the sink has not taken
  std::vector<std::size_t> free_slots_;
  std::vector<std::uint64_t> hash_;  // by slot
  std::size_t waiting_ = 0;          // buckets
  runtime::Duration waits_since_{};
  runtime::Duration waited_{};
};

}  // namespace ranvier::actors
