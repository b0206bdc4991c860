// Model states of a rank: for each unit of its stage the shards of layers' parameters, master weights, the optimizer's
// moments, and gradients of each tied use (collectives/plans/shard.hpp). README.md has the bytes per parameter.
//
// If both have one type and are on the device, the layers' parameters are the master weights, at the coarser scope.
// Offloaded parameters (offloaded_parameters.hpp) are always separate. Frozen units have parameters only.
#pragma once

#include "actors/schedule/bucket_partition.hpp"
#include "actors/schedule/chunk_schedule.hpp"
#include "actors/states/element_set.hpp"
#include "actors/states/matrix_owners.hpp"
#include "actors/states/sharded_unit.hpp"
#include "actors/states/state_kind.hpp"
#include "actors/states/tier_options.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/stage.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// A view: a range of a unit in memory.
struct UnitView {
  collectives::Range range;  ///< range in elements of the unit
  ElementSet stored = {};    ///< the view has the common elements of both
  std::byte* data = nullptr;
  runtime::DType dtype = runtime::DType::f32;
  std::optional<runtime::MemoryId> memory = std::nullopt;  ///< planned memory of `data`
  std::size_t slot = 0;                                    ///< slot of `memory`

  [[nodiscard]] std::size_t bytes() const noexcept { return runtime::bytes_of(dtype, stored.count(range)); }
  /// Maximum of bytes() over all ranks.
  [[nodiscard]] std::size_t planned_bytes() const { return runtime::bytes_of(dtype, stored.most_in(range.count)); }
  /// Address of the unit's elements starting at `begin` (a block's first for int8); null if they are offloaded.
  [[nodiscard]] std::byte* at(std::size_t begin) const noexcept {
    return data == nullptr ? nullptr
                           : data + runtime::bytes_of(dtype, stored.count({range.begin, begin - range.begin}));
  }
  [[nodiscard]] bool contains(const collectives::Range& part) const noexcept {
    return range.contains(part) && stored.contains(part);
  }
  [[nodiscard]] bool whole(std::size_t elements) const noexcept { return range.count == elements; }
};

struct UnitState {
  const models::UnitSpec* spec = nullptr;
  std::size_t global_index = 0;  ///< index in the architecture's units
  std::size_t elements = 0;      ///< padded to a multiple of the column
  BucketPartition cut;           ///< partition into buckets
  collectives::Range optimizer;  ///< range that this rank updates
  collectives::Range reduced;    ///< range of reduced gradients
  /// In the compute dtype; contains the optimizer's range unless the master is separate. Null if offloaded.
  UnitView parameters;
  std::optional<UnitView> secondary;  ///< ZeRO++: secondary shard for backward passes; null if offloaded
  UnitView master;                    ///< range `optimizer`; null if separate and offloaded
  /// Range `optimizer`, empty if the optimizer lacks the moment; null if offloaded. With Muon, v has only some elements
  /// (stored_elements()).
  UnitView m, v;
  std::vector<UnitView> gradients;   ///< by tied use, in the gradient dtype; the first one receives the sum
  std::vector<UnitMatrix> matrices;  ///< parameters that Muon updates
  std::vector<runtime::DecaySegment> segments;  ///< all others, relative to the start of the optimizer's range
  std::vector<runtime::DecaySegment> matrix_segments;  ///< `matrices`, relative to the same start
  TierKind tier = TierKind::device;                    ///< tier of parameters
  TierKind secondary_tier = TierKind::device;          ///< tier of `secondary`
  TierKind optimizer_tier = TierKind::device;          ///< tier of master weights, if separate, and of moments

  /// If false, `optimizer`, `reduced` and the ranges of gradients are empty, and only parameters have an address.
  [[nodiscard]] bool trained() const noexcept { return spec->trained; }
  /// Returns whether layers read the parameters in place; otherwise they are gathered or fetched.
  [[nodiscard]] bool in_place() const noexcept { return on_device() && parameters.whole(elements); }
  [[nodiscard]] bool on_device() const noexcept { return tier == TierKind::device; }
  /// Returns whether a secondary shard stays valid until the run ends, since no step changes it. Its first gather is
  /// the only one that crosses groups.
  [[nodiscard]] bool keeps_secondary() const noexcept { return secondary && !trained(); }
  [[nodiscard]] bool optimizer_on_device() const noexcept { return optimizer_tier == TierKind::device; }
  /// View of the parameters, master weights or a moment. Throws ErrorCode::internal for other kinds.
  [[nodiscard]] const UnitView& view(StateKind kind) const;
  [[nodiscard]] UnitView& view(StateKind kind);
};

struct PlanContext;

/// The optimizer's range, split at the bounds of this rank's layers' copies: one to three ranges. Each is completely
/// inside or outside of those copies.
[[nodiscard]] std::vector<collectives::Range> stepped_ranges(const UnitState& unit);

class UnitStates {
 public:
  /// Plans the states of the stage of `planner.share`, whose stage and column must be set. `architecture_units` gives
  /// every unit its global index. If nothing is trained, gradients and optimizer states on the device have no memory
  /// and no address.
  UnitStates(PlanContext& planner, const std::vector<models::UnitSpec>& architecture_units, bool trains);

  void bind(const runtime::Arena& arena);

  [[nodiscard]] const std::vector<UnitState>& all() const noexcept { return units_; }
  /// Text for messages: "h.3, h.2", "h.3 bucket 1, h.3 bucket 2".
  [[nodiscard]] std::string names(std::span<const ChunkSchedule::Bucket> buckets) const;
  [[nodiscard]] const models::Precision& precision() const noexcept { return precision_; }
  /// Returns whether master weights are separate from the layers' parameters.
  [[nodiscard]] bool separate_master() const noexcept { return separate_master_; }
  /// Number of trained units whose optimizer states are on the device.
  [[nodiscard]] std::size_t optimizers_on_device() const noexcept;
  [[nodiscard]] UpdateRule rule() const noexcept { return rule_; }
  /// Parameters of trained units.
  [[nodiscard]] bool trained_on_device() const noexcept { return trained_on_device_; }
  /// Returns whether layers need copies of any unit, or of any trained unit.
  [[nodiscard]] bool gathers_parameters() const noexcept;
  [[nodiscard]] bool gathers_trained() const noexcept;
  /// Returns whether gradients are reduced per microbatch.
  [[nodiscard]] bool shards_gradients() const noexcept;

 private:
  models::Precision precision_;
  UpdateRule rule_;
  bool trained_on_device_;
  bool separate_master_;
  std::vector<UnitState> units_;
};

}  // namespace ranvier::actors
