// Where a rank's states live and how they pass through the device (ZeRO-Infinity Table 2, Myelin §V-B).
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::actors {

using offload::TierKind;

/// Where AdamW computes: states come to the device (Myelin §V-B), or gradients to the host, where the states are.
enum class StepLocation { device, host };

/// What becomes of states off the device where a step must wait for an answer of all ranks.
enum class Commit {
  wait,  ///< they are stepped after it
  flip,  ///< they are stepped into spare copies before it, as if nothing were clipped; twice their memory in the tier
};

struct TierOptions {
  TierKind parameters = TierKind::device;      ///< as layers read them, between their uses
  std::optional<TierKind> trained_parameters;  ///< of what is trained, where a part is; none: the same
  TierKind gradients = TierKind::device;       ///< accumulated over the microbatches of a batch
  TierKind optimizer = TierKind::device;       ///< master weights and moments
  TierKind activations = TierKind::device;     ///< checkpoints, between the passes of their microbatch
  StepLocation step = StepLocation::device;    ///< host: `optimizer` is not the device
  Commit commit = Commit::wait;  ///< flip: likewise, and layers do not read the master weights themselves

  std::size_t bucket_elements = std::size_t{16} << 20;  ///< at most; a unit's range may be less
  std::size_t depth = 3;                                ///< buckets on the device at a time
  int checkpoint_places = 4;                            ///< activation checkpoints on the device at a time
  std::size_t chunk_buckets = 2;                        ///< of a reduction: ChunkOptions
  std::size_t bundle_bytes = 1 << 20;                   ///< likewise
  offload::FileOptions files;                           ///< of TierKind::nvme

  [[nodiscard]] TierKind parameters_of(bool trained) const noexcept {
    return trained ? trained_parameters.value_or(parameters) : parameters;
  }
  /// Whether layers' parameters live off the device, of what is frozen or of what is trained.
  [[nodiscard]] bool parameters_leave() const noexcept {
    return parameters != TierKind::device || parameters_of(true) != TierKind::device;
  }
};

}  // namespace ranvier::actors
