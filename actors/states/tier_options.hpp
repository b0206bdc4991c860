// Tiers and element types of a rank's states, and their transfer through the device (ZeRO-Infinity Table 2, Myelin
// §V-B).
#pragma once

#include "actors/states/state_kind.hpp"
#include "offload/tiers.hpp"
#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::actors {

using offload::TierKind;

/// Location of updates: states are copied to the device (Myelin §V-B), or gradients to the host.
enum class StepLocation { device, host };

/// Handling of offloaded states in steps that need an agreement of all ranks (gradient norm, overflow).
enum class Commit {
  wait,  ///< update after the agreement
  flip,  ///< update spare copies before it, as if nothing were clipped; doubles the tier's memory
};

struct TierOptions {
  TierKind parameters = TierKind::device;        ///< layers' parameters, between accesses
  std::optional<TierKind> trained_parameters;    ///< trained parameters in partial training; none: as `parameters`
  std::optional<TierKind> secondary;             ///< ZeRO++'s second copy of parameters; none: as these
  TierKind gradients = TierKind::device;         ///< accumulated over the microbatches of a batch
  TierKind optimizer = TierKind::device;         ///< master weights and moments
  std::size_t optimizer_budget = 0;              ///< bytes of offloaded optimizer states that stay on the device
  runtime::DType master = runtime::DType::f32;   ///< type of master weights: f32 or bf16
  runtime::DType moments = runtime::DType::f32;  ///< type of moments: f32, bf16, or i8 (then v is u8)
  UpdateRule rule = UpdateRule::adamw;           ///< determines the optimizer's states
  bool has_momentum = true;                      ///< false: SGD without momentum
  TierKind activations = TierKind::device;       ///< activation checkpoints, between the passes of their microbatch
  StepLocation step = StepLocation::device;      ///< host needs `optimizer` off the device
  Commit commit = Commit::wait;  ///< flip needs `optimizer` off the device and separate master weights

  std::size_t bucket_elements = std::size_t{16} << 20;  ///< maximum bucket size
  std::size_t depth = 3;                                ///< maximum number of buckets on the device
  int checkpoint_places = 4;                            ///< maximum number of activation checkpoints on the device
  std::size_t chunk_buckets = 2;                        ///< see ChunkOptions
  std::size_t bundle_bytes = 1 << 20;                   ///< see ChunkOptions
  offload::FileOptions files;                           ///< files of TierKind::nvme

  [[nodiscard]] TierKind parameters_of(bool trained) const noexcept {
    return trained ? trained_parameters.value_or(parameters) : parameters;
  }
  /// Tier of ZeRO++'s second copy of the parameters.
  [[nodiscard]] TierKind secondary_of(bool trained) const noexcept {
    return secondary.value_or(parameters_of(trained));
  }
  /// Number of arrays of a unit in a checkpoint: the first ones of optimizer_states. A frozen unit has weights only.
  [[nodiscard]] std::size_t arrays_of(bool trained) const noexcept {
    if (!trained) return 1;
    if (rule != UpdateRule::sgd) return optimizer_states.size();
    return has_momentum ? 2 : 1;
  }
  /// Returns whether any layers' parameters are stored off the device.
  [[nodiscard]] bool parameters_leave() const noexcept {
    return parameters != TierKind::device || parameters_of(true) != TierKind::device;
  }
};

}  // namespace ranvier::actors
