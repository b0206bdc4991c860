// The data-parallel phase of gradients (Myelin §III-B, §IV-B; MiCS §3.4; PaRO §3.4), unit by unit from the back and
// overlapped with the passes:
//
//   scope N    layers accumulate in place over the microbatches of a batch
//   scope I,G  each step of a pass writes a microbatch's gradients to a place of their own; they are reduce-scattered
//              as the step leaves them, and this rank's piece is accumulated
//
// Where sums live off the device (gradient_tier.hpp) this rank's piece is accumulated there; and where it is the whole
// unit, the sum so far is brought to the place before the layer adds to it. At the batch's end each chunk passes
// through one of a few places on the device, and what is left of it goes back to the tier; where every step counts it
// stays there until the optimizer took it.
//
// At the batch's end the uses of a unit are summed, and chunk by chunk (chunk_schedule.hpp) the second hop or the
// all-reduce of the flow follows, as soon as the last backward pass has left the chunk's units. Sums of squares of what
// is then complete are taken for the global norm, over blocks of every finest piece that are added up in order at the
// end: the norm has the same bits whatever the buckets and chunks.
//
// A tied unit on two stages (embedding and head) is exchanged between them inside each row first; both add the same
// two numbers and both columns reduce alike, so the copies stay equal to the bit. Where columns may round differently
// the first stage sends what its column left to the other one (sum_copy.hpp).
// Loop thread only.
#pragma once

#include "actors/gradients/chunk_schedule.hpp"
#include "actors/gradients/gradient_tier.hpp"
#include "actors/exchange/hop_pipeline.hpp"
#include "actors/states/slot_schedule.hpp"
#include "actors/gradients/sum_copy.hpp"
#include "actors/states/unit_states.hpp"
#include "actors/gradients/use_sum.hpp"
#include "runtime/staged_transport.hpp"
#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

class GradientSync {
 public:
  struct Options {
    /// By unit of the stage: the rank of this row that holds the unit too.
    std::vector<std::optional<int>> partners;
    bool in_tier = false;                 ///< sums are not on the device
    bool every_step_counts = false;       ///< the optimizer takes chunks as they are reduced
    int prefetch = 2;                     ///< steps whose reduction the backward pass may be ahead of
    std::size_t message_bytes = 1 << 20;  ///< of the exchange between stages
    int depth = 4;                        ///< of them at a time, over all tied units, and one of each
  };

  /// What the phase needs beside the gradients themselves.
  struct Memory {
    SlotClasses classes;
    std::vector<runtime::MemoryId> places;  ///< by class: of a microbatch's gradients
    HopPipeline::Memory microbatch, batch;
    runtime::MemoryId exchange_staging, block_sums, squares;
    runtime::MemoryId chunk_places;  ///< of chunks that come from a tier
    std::size_t chunk_place_count = 0;
  };
  [[nodiscard]] static Memory plan(const models::Stage& stage, const UnitStates& states, const ColumnOptions& column,
                                   const collectives::ShardFlow& flow, const ChunkSchedule& chunks,
                                   const Options& options, runtime::MemoryPlan& plan);

  /// What tied units send and receive at a time.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const UnitStates& states,
                                                                            const Options& options);

  /// `accumulate` runs what adds arriving gradients up. `tier` is null where sums are on the device. All outlive the
  /// sync.
  GradientSync(runtime::EventLoop& loop, runtime::Transport& transport, collectives::Executor& executor,
               runtime::StreamView compute, runtime::StreamView accumulate, const models::Stage& stage,
               const UnitStates& states, const ColumnOptions& column, const collectives::ShardFlow& flow,
               const ChunkSchedule& chunks, runtime::Trace& trace, Options options, GradientTier* tier,
               const Memory& memory, const runtime::Arena& arena);

  /// Called with each chunk's number when its gradients are reduced, in the order of the chunks. Once, before start().
  void when_reduced(std::function<void(std::size_t chunk)> reduced) { chunk_reduced_ = std::move(reduced); }

  /// Before a batch of so many microbatches; `done` runs when all units are reduced and their sums of squares are
  /// there.
  void start(int microbatches, runtime::Handler done);

  // A backward pass and its steps that write gradients.

  /// Returns the number of the pass's first such step, the others follow. Passes are announced in the order in which
  /// they run, at the latest when they begin.
  std::uint64_t announce(const models::Stage::Pass& pass);
  /// Whether the step has a place to write to.
  [[nodiscard]] bool ready(std::uint64_t step) const;
  /// Calls `handler` once it has; one at a time.
  void when_ready(std::uint64_t step, runtime::Handler handler);
  /// Where the gradients of the step's uses go, by unit of its layer.
  [[nodiscard]] std::span<std::byte* const> places(std::uint64_t number, const models::Stage::Step& step) const;
  /// Whether a layer adds to what is there, rather than overwriting it.
  [[nodiscard]] bool accumulates(int microbatch) const noexcept { return !shards_ && microbatch > 0; }
  /// The work that writes the gradients was queued on the compute stream.
  void queued(std::uint64_t number, const models::Stage::Step& step);
  /// Whether written() has to be called for this microbatch.
  [[nodiscard]] bool listens(int microbatch) const noexcept { return moves_ || microbatch + 1 == microbatches_; }
  /// The gradients are there: on the loop, after the work that made them. In the order of the steps.
  void written(std::uint64_t number, const models::Stage::Step& step, int microbatch);

  /// Test only: the first gradients that the front layer writes in this batch become infinite.
  void spoil() { spoils_ = true; }

  /// Σ gradient² of this rank's piece of a unit over the whole batch, after `done`.
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return *squares_[unit]; }

  /// What is under way, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;

 private:
  struct Unit {
    int uses_missing = 0;
    std::size_t buckets_missing = 0;  ///< of the sums of squares
    float* block_sums = nullptr;      ///< piece by piece of what is reduced
    bool ready = false;               ///< for the column
    std::size_t exchanges_begun = 0;
    std::size_t exchanges_missing = 0;
    std::vector<std::byte*> exchange_staging;
    std::unique_ptr<UseSum> use_sum;    ///< in a tier
    std::unique_ptr<SumCopy> sum_copy;  ///< of a unit on two stages whose columns may round differently
  };
  /// A chunk on its way through the device, its buckets one after another on blocks.
  struct Loaded {
    std::byte* place = nullptr;
    std::size_t missing = 0;  // buckets, on their way here and back
    bool there = false;
    bool left = false;
  };
  struct Slot {
    std::byte* data = nullptr;
    std::optional<std::uint64_t> over;  // the last step whose gradients have left
  };
  struct Sum {
    std::size_t use = 0;      // of the stage
    std::uint64_t after = 0;  // the step that left it
    bool begun = false;       // to be brought
  };
  struct Step {
    models::Stage::Step writes;
    int microbatch = 0;
    bool reduced = false;
    std::vector<std::size_t> slots;                   // by use of the step
    std::vector<std::optional<std::uint64_t>> after;  // the step that must have left them
    std::vector<std::byte*> places;                   // by unit of the layer
    std::vector<Sum> sums;                            // by use of the step, where layers add to what a tier has
    std::size_t sums_missing = 0;
  };

  [[nodiscard]] const Step& step(std::uint64_t number) const { return steps_[number - first_step_]; }
  [[nodiscard]] bool is_free(const Step& step, std::size_t slot) const;
  void bring_sums();
  void leave(std::uint64_t number);
  void accumulate_reduced();
  void accumulate(const Step& step, const runtime::Handler& done);
  void accumulate_in_tier(const Step& step, const runtime::Handler& done);
  void check_waiting();
  void complete(const models::Stage::Step& writes);
  void uses_complete(std::size_t unit);
  void exchange_next(std::size_t unit, std::byte* staging);
  void summed(std::size_t unit);
  void reduce_ready();
  void submit(std::size_t chunk);
  void left_by_column(std::size_t chunk);
  void reduced(std::size_t chunk);
  /// Calls f(bucket, bytes) with where each bucket of a loaded chunk lies.
  template <typename F>
  void for_loaded(std::size_t chunk, F f);
  void load(std::size_t chunk);
  void keep(std::size_t chunk);
  void lend(std::size_t chunk);
  void chunk_over();
  /// What is reduced of a bucket. `record`: the bucket of a range of gradients, where it comes from a tier; otherwise
  /// null.
  [[nodiscard]] std::vector<runtime::Bytes> reduced_runs(const ChunkSchedule::Bucket& bucket,
                                                         std::byte* record) const;
  void take_squares(const ChunkSchedule::Bucket& bucket, std::byte* record);
  [[nodiscard]] std::size_t before_reduced(const ChunkSchedule::Bucket& bucket) const;
  /// Calls `next` on the loop after what the stream has queued.
  void after(runtime::StreamView stream, runtime::Handler next);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  runtime::StreamView compute_;
  runtime::StreamView accumulate_;
  const models::Stage* stage_;
  const UnitStates* states_;
  const ChunkSchedule* chunks_;
  runtime::Trace* trace_;
  Options options_;
  GradientTier* tier_;
  bool shards_;
  bool moves_;  // a microbatch's gradients go elsewhere from where they are written
  SlotSchedule schedule_;
  HopPipeline microbatch_, batch_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> use_in_unit_;             // by use of the stage
  std::vector<std::vector<std::byte*>> own_places_;  // by layer, where layers accumulate in place
  std::size_t exchange_elements_ = 0;
  std::vector<double*> squares_;

  int microbatches_ = 0;
  int announced_ = 0;                     // passes of the batch
  std::vector<std::uint64_t> last_step_;  // by use of the stage, in the batch
  bool spoils_ = false;
  std::deque<Step> steps_;
  std::uint64_t first_step_ = 0;  // number of steps_.front()
  std::uint64_t waiting_step_ = 0;
  runtime::Handler waiting_;
  std::vector<Unit> units_;
  std::size_t next_chunk_ = 0;       // to be reduced: one order on every row, whatever is ready first
  std::vector<bool> left_by_column_;    // by chunk
  std::size_t next_left_by_column_ = 0; // to be copied, where a unit of it is
  std::vector<bool> reduced_;        // by chunk
  std::size_t next_reduced_ = 0;     // to be announced
  std::vector<Loaded> loaded_;       // by chunk, where they come from a tier
  std::size_t next_loaded_ = 0;      // to be submitted
  std::size_t next_left_ = 0;        // to be announced
  std::vector<std::byte*> free_places_;
  std::size_t missing_ = 0;          // chunks whose sums of squares are not there
  std::function<void(std::size_t)> chunk_reduced_;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
