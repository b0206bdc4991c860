// Assignment of slices (model chunks) to stages for interleaved pipelines (Narayanan et al. 2021, "Efficient
// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", §2.2). p stages with v chunks have p · v
// slices; slice k is chunk k / p of stage k mod p. A microbatch passes the stages v times. Pure data; any thread.
#pragma once

namespace ranvier::actors {

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

}  // namespace ranvier::actors
