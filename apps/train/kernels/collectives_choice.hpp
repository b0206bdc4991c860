// Whether NCCL carries out the collectives of a run on GPUs, or plans over messages do: decided once, from what all
// ranks know, so that all decide alike. Pure; any thread.
#pragma once

#include "apps/train/options/train_options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// What there is to decide on, the same on all ranks.
struct NcclSituation {
  std::optional<int> version;      ///< of NCCL on all ranks; none: some have none
  std::string obstacle;            ///< then, why, as far as it is known
  std::vector<std::int64_t> gpus;  ///< by rank, collectives::gpu_identity()
};

struct CollectivesChoice {
  bool nccl = false;
  std::string line;  ///< for people; empty: there are no collectives, or no GPUs
};

/// Throws ErrorCode::usage where --collectives nccl asks for what cannot be, as far as flags tell.
void check_collectives(const TrainOptions& options);

/// Throws ErrorCode::usage where --collectives nccl asks for what cannot be here. NCCL from 2.30 on lets ranks
/// share a GPU.
[[nodiscard]] CollectivesChoice choose_collectives(const TrainOptions& options, const NcclSituation& situation);

/// Whether NCCL may turn out to carry out collectives: it is worth opening.
[[nodiscard]] bool may_use_nccl(const TrainOptions& options);

/// Whether messages go through pinned memory although MPI reaches a GPU's: CUDA-aware MPI and NCCL that are at work
/// at the same time may wait for each other for ever, and with several stages both are.
[[nodiscard]] bool nccl_needs_staging(const TrainOptions& options, bool nccl);

/// What NCCL's buffers have taken of a GPU, which no plan counts; for people. More than is kept free is a warning.
[[nodiscard]] std::string nccl_memory_line(std::size_t taken_bytes);

}  // namespace ranvier::apps
