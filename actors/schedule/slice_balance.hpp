// Slices (model chunks) of a pipeline: their stages, and layers balanced over them. Pure; any thread.
#pragma once

#include "models/core/architecture.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

/// Assignment of slices (model chunks) to stages for interleaved pipelines (Narayanan et al. 2021, "Efficient
/// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", §2.2). p stages with v chunks have p · v
/// slices; slice k is chunk k / p of stage k mod p. A microbatch passes the stages v times. Pure data; any thread.
struct SliceMap {
  int stages = 1;
  int chunks = 1;  ///< slices per rank

  [[nodiscard]] int slices() const noexcept { return stages * chunks; }
  [[nodiscard]] int stage_of(int slice) const noexcept { return slice % stages; }
  [[nodiscard]] int chunk_of(int slice) const noexcept { return slice / stages; }
  [[nodiscard]] int slice_of(int stage, int chunk) const noexcept { return chunk * stages + stage; }

  /// Tag index of a microbatch's activations or gradients for a slice; unique per receiving rank and channel.
  [[nodiscard]] int message_index(int microbatch, int receiving_slice) const noexcept {
    return microbatch * chunks + chunk_of(receiving_slice);
  }
};

/// Stage of each layer. `slices` cover all layers, from the front.
[[nodiscard]] std::vector<std::size_t> stages_of_layers(const std::vector<models::LayerRange>& slices,
                                                        const SliceMap& map);

/// Throws ErrorCode::usage for fewer than 1 chunk, several chunks on one stage, and several chunks that are more
/// slices than `layers`. A single chunk per stage is checked by balance_slices().
void check_slices(const SliceMap& map, std::size_t layers);

/// Returns non-empty slices. One slice per rank: models::balance(). Several: starts from models::balance() and shifts
/// single layers away from the rank with the highest total cost while that lowers the maximum over ranks, then the
/// largest slice. `slowness`: slowdown factor by stage, for several slices per rank; empty: all equal. Throws
/// ErrorCode::usage if there are fewer layers than slices.
[[nodiscard]] std::vector<models::LayerRange> balance_slices(const std::vector<double>& costs, const SliceMap& map,
                                                             const std::vector<double>& slowness = {});

}  // namespace ranvier::actors
