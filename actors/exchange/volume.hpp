// What the data-parallel half of a batch sends, and over which links: PaRO's Table 2 for any sharding and
// algorithms, any groups, and uneven nodes. Pure data; any thread.
//
// Counted is what all ranks of one column send: gathers of parameters and sums of gradients, padding included. Left
// out is what passes between stages (activations and their gradients, the gradients of a tied unit), a few numbers
// of consensus, and validation.
#pragma once

#include "actors/exchange/algorithm_choice.hpp"
#include "actors/states/unit_traffic.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Over one class of links.
struct SentVolume {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;

  SentVolume& operator+=(const SentVolume& other) noexcept;
  friend bool operator==(const SentVolume&, const SentVolume&) = default;
};

struct PhaseVolume {
  SentVolume intra_node;
  SentVolume inter_node;
  double seconds = 0;  ///< on these links, one operation after the other and nothing beside them

  PhaseVolume& operator+=(const PhaseVolume& other) noexcept;
};

/// Of one batch.
struct Volume {
  PhaseVolume forward;   ///< passes of all microbatches
  PhaseVolume backward;  ///< likewise, with the gradients that each of them sends
  PhaseVolume update;    ///< once: sums at the accumulation boundary, and the refreshed parameters

  [[nodiscard]] PhaseVolume total() const noexcept;
};

struct VolumeOptions {
  std::vector<int> node_of;      ///< [rank of the column] where it really is
  std::vector<int> node_of_row;  ///< as the ranks are laid out (collectives::common_rows); empty: the same
  int group_size = 1;
  PlanChoices algorithms;
  collectives::Links links = assumed_links;
  models::Precision precision;
  offload::TierKind parameters = offload::TierKind::device;            ///< where they live
  std::optional<offload::TierKind> trained_parameters = std::nullopt;  ///< TierOptions
  /// Parameters are pulled from their owners, piece by piece, instead of gathered by a collective (pipelines).
  bool pulls = false;
};

/// Counts for one column; remembers what it worked out, as units are alike and shardings have operations in common.
class VolumeCounter {
 public:
  explicit VolumeCounter(VolumeOptions options);
  ~VolumeCounter();
  VolumeCounter(const VolumeCounter&) = delete;
  VolumeCounter& operator=(const VolumeCounter&) = delete;

  /// Of frozen units the gathers alone are counted.
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
  std::vector<std::vector<collectives::Team>> teams_;  // by TeamKind, on the nodes where they really are
  std::unique_ptr<Memory> memory_;
};

}  // namespace ranvier::actors
