// Optimizer states that live off the device, in host memory or in files, and pass through a few slots on it bucket by
// bucket (Myelin §V-B, ZeRO-Infinity §5.1.1): fetch → AdamW → store, several buckets at a time. A unit's range is cut
// into buckets; what one needs lies together in the tier (offload/bucket_layout.hpp): in half precision master weights
// and both moments, in fp32 the moments, as layers read the master weights themselves. The first buckets are fetched
// while the batch is still being computed. Loop thread only.
#pragma once

#include "actors/unit_states.hpp"
#include "offload/bucket_pipeline.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class StateTier {
 public:
  struct Memory {
    std::optional<runtime::MemoryId> slots;
    std::size_t slot_bytes = 0;
    std::vector<offload::TierRegion> regions;  ///< by unit
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const TierOptions& options, offload::TierPlan& tiers,
                                   runtime::MemoryPlan& plan);

  /// `unit_stepped` says that a unit's range is as the step leaves it. All references outlive this.
  StateTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView compute, const UnitStates& states,
            const TierOptions& options, const Memory& memory, const runtime::Arena& arena,
            std::function<void(std::size_t unit)> unit_stepped);

  /// Values of elements [begin, begin + out.size()) of a unit.
  using Source = std::function<void(const models::UnitSpec& unit, std::size_t begin, std::span<float> out)>;
  /// Fills the master weights; once, before anything else.
  void load(Source weights, runtime::Handler done);

  /// A batch begins: its step's first buckets are fetched.
  void begin();
  /// The step counts: `adamw` as it is for it. Its units follow; `stored` runs once all of them are in the tier, which
  /// may be after the next begin().
  void step(const runtime::AdamWOptions& adamw, runtime::Handler stored);
  /// The unit's gradient is complete at `gradient`, where its optimizer range begins, and stays until it was stepped.
  /// `parameters`: where its part of the parameters is to lie, if the master weights are separate.
  void ready(std::size_t unit, const std::byte* gradient, std::byte* parameters);
  /// The step does not count; `done` runs once nothing of it is under way.
  void skip(runtime::Handler done);

  /// Copies master weights [begin, begin + out.size()), which lie in the optimizer's range; between steps.
  void read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

  /// Whether states are on their way or being stepped, for as long as a slow disk may take.
  [[nodiscard]] bool working() const noexcept { return over_ || loaded_; }

 private:
  struct Bucket {
    std::size_t unit = 0;
    std::size_t index = 0;  ///< within the unit
  };
  /// One bucket in a slot.
  struct View {
    float* weights = nullptr;
    float* m = nullptr;
    float* v = nullptr;
    std::size_t begin = 0;  ///< of the optimizer's range
    std::size_t end = 0;
  };

  [[nodiscard]] std::span<std::byte> slot(std::size_t index) const;
  [[nodiscard]] View view(const Bucket& bucket, std::size_t slot_index) const;
  void fetch(const Bucket& bucket, std::size_t slot, runtime::Handler done);
  void store(const Bucket& bucket, std::size_t slot, runtime::Handler done);
  void load_next(std::size_t bucket);
  void begin_now();
  void compute(const offload::BucketPass& pass, runtime::Handler done);
  void refresh(const offload::BucketPass& pass, const runtime::Handler& done);

  runtime::EventLoop* loop_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  bool half_;
  std::function<void(std::size_t)> unit_stepped_;
  const runtime::Arena* arena_;
  Memory memory_;
  offload::Tiers* tiers_;
  std::vector<offload::BucketLayout> layouts_;  // by unit
  std::vector<Bucket> buckets_;             // of all units, one after another
  std::vector<std::size_t> first_bucket_;   // by unit
  std::unique_ptr<offload::BucketPipeline> pipeline_;

  Source weights_;
  runtime::Buffer host_;  // what a source fills
  runtime::Handler loaded_;
  runtime::AdamWOptions adamw_;
  std::vector<const std::byte*> gradients_;      // by unit
  std::vector<std::byte*> parameters_;           // likewise
  std::vector<std::size_t> buckets_missing_;     // likewise, of the step
  bool running_ = false;                         // a step of the pipeline
  bool begins_again_ = false;                    // once that is over
  bool step_waits_ = false;                      // for that beginning, with its units
  std::vector<runtime::Handler> once_begun_;     // calls that do
  runtime::Handler over_;                        // what follows the step that runs
  std::optional<std::size_t> held_;  // the bucket in slot 0 that was read last
};

}  // namespace ranvier::actors
