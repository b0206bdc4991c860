// Which rank of a pipeline has which slice of the model, where every rank has several ("interleaved", Narayanan et al.
// 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", §2.2): p stages of v chunks
// cut the layers into p · v slices, of which slice k is chunk k / p of stage k mod p. A microbatch goes round the
// stages v times. Pure data; any thread.
#pragma once

namespace ranvier::actors {

struct SliceMap {
  int stages = 1;
  int chunks = 1;  ///< slices of a rank

  [[nodiscard]] int slices() const noexcept { return stages * chunks; }
  [[nodiscard]] int stage_of(int slice) const noexcept { return slice % stages; }
  [[nodiscard]] int chunk_of(int slice) const noexcept { return slice / stages; }
  [[nodiscard]] int slice_of(int stage, int chunk) const noexcept { return chunk * stages + stage; }

  /// The index of the messages that carry a microbatch's activations to a slice, or gradients: of all that a rank
  /// receives on a channel no two have the same.
  [[nodiscard]] int message_index(int microbatch, int receiving_slice) const noexcept {
    return microbatch * chunks + chunk_of(receiving_slice);
  }
};

}  // namespace ranvier::actors
