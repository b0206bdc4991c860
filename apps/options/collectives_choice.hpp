// Choice between NCCL and plans over messages for collectives on GPUs. All ranks decide from the same data, once. Pure
// functions, callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Data for the decision, the same on all ranks.
struct NcclSituation {
  std::optional<int> version;      ///< NCCL version of all ranks; none: some ranks lack it or differ
  std::string obstacle;            ///< reason for a missing version; may be empty
  std::vector<std::int64_t> gpus;  ///< collectives::gpu_identity() by rank
};

struct CollectivesChoice {
  bool nccl = false;
  std::string line;  ///< line of the startup output; empty without collectives or GPUs
};

/// Throws ErrorCode::usage if --collectives nccl contradicts other flags or this build.
void check_collectives(const TrainOptions& options);

/// Throws ErrorCode::usage if --collectives nccl is not possible on these ranks. NCCL 2.30 and later let ranks share a
/// GPU.
[[nodiscard]] CollectivesChoice choose_collectives(const TrainOptions& options, const NcclSituation& situation);

/// Whether NCCL may be chosen, so that its library must be opened.
[[nodiscard]] bool may_use_nccl(const TrainOptions& options);

/// Whether messages must go through pinned memory even with CUDA-aware MPI. With several stages, or Muon, MPI and
/// NCCL work on the GPU at the same time, which can deadlock.
[[nodiscard]] bool nccl_needs_staging(const TrainOptions& options, bool nccl);

/// Startup line with the device memory of NCCL's buffers, which the memory plan does not count. Warns if it exceeds the
/// reserve.
[[nodiscard]] std::string nccl_memory_line(std::size_t taken_bytes);

}  // namespace ranvier::apps
