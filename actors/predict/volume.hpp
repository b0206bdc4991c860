// Data-parallel traffic of a batch by class of link: PaRO's Table 2 for any sharding, algorithm, groups and uneven
// nodes. Pure data; any thread. Includes gathers of parameters and reductions of gradients by all ranks of a column,
// with padding. Excludes messages between stages, agreements and validation.
#pragma once

#include "actors/predict/unit_traffic.hpp"
#include "actors/states/algorithm_choice.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Traffic of one class of links.
struct SentVolume {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;

  SentVolume& operator+=(const SentVolume& other) noexcept;
  friend bool operator==(const SentVolume&, const SentVolume&) = default;
};

struct PhaseVolume {
  SentVolume intra_node;
  SentVolume inter_node;
  double seconds = 0;  ///< time if operations run one after the other, without other traffic

  PhaseVolume& operator+=(const PhaseVolume& other) noexcept;
};

/// Traffic of a batch.
struct Volume {
  PhaseVolume forward;   ///< passes of all microbatches
  PhaseVolume backward;  ///< backward passes, with reductions per microbatch
  PhaseVolume update;    ///< reductions at the batch's end and refreshed parameters

  [[nodiscard]] PhaseVolume total() const noexcept;
};

struct VolumeOptions {
  std::vector<int> node_of;      ///< real node by rank of the column
  std::vector<int> node_of_row;  ///< node in the layout (collectives::common_rows); empty: the same
  int group_size = 1;
  PlanChoices algorithms;
  collectives::Links links = assumed_links;
  models::Precision precision;
  offload::TierKind parameters = offload::TierKind::device;            ///< tier of parameters
  std::optional<offload::TierKind> trained_parameters = std::nullopt;  ///< see TierOptions
  /// Parameters are pulled from their owners instead of gathered by collectives (message-driven pipelines).
  bool pulls = false;
};

/// Computes volumes of a column; caches results, since units repeat.
class VolumeCounter {
 public:
  explicit VolumeCounter(VolumeOptions options);
  ~VolumeCounter();
  VolumeCounter(const VolumeCounter&) = delete;
  VolumeCounter& operator=(const VolumeCounter&) = delete;

  /// Frozen units count with their gathers only.
  [[nodiscard]] Volume count(std::span<const UnitTraffic> units, const UnitShardings& shardings);

 private:
  struct Memory;

  [[nodiscard]] PhaseVolume of(std::span<const collectives::Hop> hops, std::size_t unit_elements,
                               runtime::DType dtype);
  [[nodiscard]] PhaseVolume of(const collectives::Hop& hop, std::size_t unit_elements, runtime::DType dtype);
  [[nodiscard]] PhaseVolume pulled(std::span<const collectives::Hop> hops, std::size_t unit_elements,
                                   runtime::DType dtype);

  VolumeOptions options_;
  collectives::ShardLayout layout_;
  std::vector<std::vector<collectives::Team>> teams_;  // by TeamKind, with real nodes
  std::unique_ptr<Memory> memory_;
};

}  // namespace ranvier::actors
