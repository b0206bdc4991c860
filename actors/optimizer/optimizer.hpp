// The step of the optimizer, bucket by bucket as the gradients of chunks come (Myelin §V-C, chunk_schedule.hpp): AdamW
// on the part of each unit whose optimizer states this rank holds, then the refreshed parameters to exactly the ranks
// that need them (PaRO §3.4, update phase).
//
//   reduced chunk → gather of its gradients, where optimizer states are shared out less than they
//                 → fetch of states, where they live off the device (state_tier.hpp) → AdamW → store
//                 → gather of refreshed parameters → store, where they live off the device (parameter_records.hpp)
//
// Gathers go bundle by bundle, in one order on all ranks whatever is stepped first. Where every step counts, a chunk is
// stepped as soon as it is reduced, while others still are; otherwise states are fetched ahead and the step waits for
// the answer, and goes from the front then, so that the next batch can begin with the first layers while later ones are
// still under way.
//
// Commit::flip does not wait: chunks are stepped as they are reduced, as if the step counted and nothing were clipped,
// from the states that count into spare copies, and layers' parameters stay. Then, with the answer,
//
//   it is so           spare copies count from now on; of a bucket that was stepped only the master weights are fetched
//                      and rounded for layers, one that was not is stepped as without flip
//   it is clipped      spare copies are forgotten, all is stepped as without flip
//   it does not count  spare copies are forgotten
//
// to the bit the same as without. Steps ahead end with the answer, but where gradients pass through places: there all
// are taken, so that all ranks gather the same. Loop thread only.
#pragma once

#include "actors/gradients/gradient_tier.hpp"
#include "actors/exchange/hop_pipeline.hpp"
#include "actors/optimizer/host_step.hpp"
#include "actors/states/parameter_store.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/optimizer/state_tier.hpp"
#include "actors/states/unit_states.hpp"
#include "offload/bucket_pipeline.hpp"
#include "runtime/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

class Optimizer {
 public:
  struct Options {
    TierOptions tiers;
    /// Nothing of a step depends on an answer of all ranks: no clipping, no loss scale that overflow changes.
    /// Commit::flip is for where it does.
    bool every_step_counts = false;
  };
  /// What answers came to, and the time from them to when everything was as the step leaves it.
  struct Answers {
    std::int64_t steps = 0;
    std::int64_t skipped = 0;
    std::int64_t flipped = 0;        ///< counted as they were stepped ahead
    std::int64_t again = 0;          ///< were clipped, so stepped again
    std::int64_t buckets_ahead = 0;  ///< of those that flipped: stepped before the answer
    std::int64_t buckets = 0;        ///< likewise, all of them
    double seconds = 0;       ///< over all steps
  };
  struct Memory {
    runtime::MemoryId gradient_places;   ///< that gradients are gathered to, each for any bundle
    runtime::MemoryId parameter_places;  ///< likewise for parameters that live off the device
    std::size_t gradient_place_count = 0, parameter_place_count = 0;
    HopPipeline::Memory gradient, refresh;
    StateTier::Memory states;
    std::optional<HostStep::Memory> host_step;
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const ColumnOptions& column,
                                   const collectives::ShardFlow& flow, const ChunkSchedule& chunks,
                                   const Options& options, offload::TierPlan& tiers, runtime::MemoryPlan& plan);

  /// `parameter_tier` is null where parameters live on the device, `gradient_tier` where sums of gradients do. All
  /// outlive the optimizer.
  Optimizer(runtime::EventLoop& loop, offload::Tiers& tiers, collectives::Executor& executor,
            runtime::StreamView compute, const UnitStates& states, const ColumnOptions& column,
            const collectives::ShardFlow& flow, const ChunkSchedule& chunks, ParameterStore& parameters,
            ParameterRecords* parameter_tier, GradientTier* gradient_tier, runtime::Trace& trace, const Options& options,
            const Memory& memory, const runtime::Arena& arena);

  /// Fills master weights that live off the device; before the first begin().
  void load(StateTier::Source weights, runtime::Handler done);

  /// A batch begins, once the one before was answered: the first states are fetched. `unclipped` is for its step if
  /// that counts and nothing is clipped.
  void begin(const runtime::AdamWOptions& unclipped);
  /// The gradients of a chunk are reduced; in the order of the chunks.
  void reduced(std::size_t chunk);
  /// All passes are over and the step counts. `done` runs once all states of this rank are as the step leaves them; the
  /// next batch may begin before, and where states live off the device even end.
  void step(const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// The step does not count: parameters stay. `done` likewise.
  void skip(runtime::Handler done);

  /// Copies master weights [begin, begin + out.size()) of a unit, which lie in the optimizer's range; between steps.
  void read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

  [[nodiscard]] const Answers& answers() const noexcept { return answers_; }

  /// What is under way, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;

 private:
  using Bucket = ChunkSchedule::Bucket;
  struct Bundle {
    std::vector<Bucket> buckets;
    std::size_t first = 0;  ///< number of the first bucket, the others follow
    std::size_t buckets_missing = 0;
    std::size_t buckets_copying = 0;  ///< to `gradients`
    bool copied = false;
    bool stepped = false;
    std::byte* gradients = nullptr;   ///< place, where they are gathered or come from a tier
    std::byte* parameters = nullptr;  ///< place, where they live off the device
  };
  struct BundleBucket {
    Bucket bucket;
    std::size_t bundle = 0;
    std::size_t gradient_offset = 0, parameter_offset = 0;  ///< bytes in the bundle's places
  };
  /// All bundles once, in an order of their own.
  struct Round {
    std::vector<Bundle> bundles;
    std::vector<BundleBucket> buckets;
    std::unique_ptr<offload::BucketPipeline> pipeline;
  };
  struct Step {
    runtime::AdamWOptions adamw;
    std::optional<bool> counts;
    bool as_ahead = false;           ///< it counts, with the `adamw` that it began with
    std::vector<std::size_t> ready;  ///< buckets that came while the states of the step before were being stored
    std::size_t bundles_missing = 0;
    int parts_missing = 3;  ///< the answer, the parameters, the states
    runtime::Duration answered;
    runtime::Handler done;
  };

  void plan_rounds(const Options& options);
  void begin_states();
  void begin_steps();
  void begin_ahead();
  void end_ahead();
  void ahead_over();
  void begin_bundles();
  void gather_gradients(std::size_t bundle);
  void bucket_copied(std::size_t bundle);
  void gradients_here(std::size_t bundle);
  void ready(std::size_t bucket);
  [[nodiscard]] std::vector<HostStep::Piece> pieces(const Round& round, const offload::BucketPass& pass) const;
  void compute(const Round& round, const offload::BucketPass& pass, runtime::Handler done);
  void round_weights(const offload::BucketPass& pass, runtime::Handler done);
  void clear_place(const BundleBucket& bucket);
  [[nodiscard]] std::byte* layers_copy(const BundleBucket& bucket, const collectives::Range& run) const;
  void release_gradients(Bundle& bundle);
  void bucket_stepped(std::size_t bundle);
  void bucket_stepped_ahead(std::size_t bundle);
  void refresh(std::size_t bundle);
  void store_parameters(std::size_t bundle);
  void bundle_refreshed(std::size_t bundle);
  void bucket_refreshed(const Bucket& bucket);
  void part_over(Step& step);

  runtime::EventLoop* loop_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  const ChunkSchedule* chunks_;
  ParameterStore* parameters_;
  ParameterRecords* parameter_tier_;
  GradientTier* gradient_tier_;
  runtime::Trace* trace_;
  StateTier states_tier_;
  std::unique_ptr<HostStep> host_step_;  ///< null: steps are the device's
  HopPipeline gradient_, refresh_;
  bool every_step_counts_;
  bool flips_;
  bool gathers_gradients_;
  bool refreshes_;
  bool in_stream_order_;  ///< nobody reads parameters but the compute stream, whose order is enough
  Round steps_, ahead_;  // ahead_: where states flip
  Round* round_ = &steps_;                   // whose bundles are begun
  std::vector<std::vector<bool>> is_ahead_;  // by unit and bucket: of the step that is in a pipeline, stepped ahead

  std::deque<std::shared_ptr<Step>> storing_;     // whose states are not all stored; the first one is in the pipeline
  std::deque<std::shared_ptr<Step>> refreshing_;  // whose parameters are not all refreshed
  std::shared_ptr<Step> newest_;
  std::size_t may_begin_ = 0;     // bundles, of the first of refreshing_
  std::size_t next_bundle_ = 0;   // to begin
  std::size_t next_gather_ = 0;   // of gradients
  std::size_t next_refresh_ = 0;  // to gather
  std::vector<std::size_t> buckets_missing_;  // by unit, of the refresh
  std::vector<std::byte*> free_gradient_places_, free_parameter_places_;
  Answers answers_;
};

}  // namespace ranvier::actors
