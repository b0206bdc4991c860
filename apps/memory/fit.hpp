// Fit check of a planned job: memory and disk space needed and available, and the largest kind of memory. Functions are
// pure and callable from any thread, except capacity_of().
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace ranvier::apps {

/// Device memory, host memory and disks. nullopt: unknown, for instance with --world.
struct JobCapacity {
  std::optional<std::size_t> device_bytes;  ///< device memory per rank
  std::optional<std::size_t> host_bytes;    ///< host memory per node, for all its ranks
  std::optional<std::size_t> disk_bytes;    ///< free bytes per node for state files
  std::optional<std::size_t> save_bytes;    ///< free bytes on the disk of --save
  std::size_t saved_bytes = 0;              ///< bytes that --save writes
  double states_beside_save = 0;            ///< fraction of a node's state files on that disk
  bool device_is_host = false;              ///< device memory is part of its node's memory
};

/// Called by all ranks, on the loop thread before the loop runs. Returns the smallest values of all ranks and machines.
[[nodiscard]] JobCapacity capacity_of(runtime::MpiSession& session, const TrainOptions& options, const Job& job);

/// Bytes needed by the rank or node that needs most.
struct MemoryNeeds {
  std::size_t device = 0;  ///< device memory per rank
  std::size_t stage = 0;   ///< stage of the rank with the most device memory
  std::size_t host = 0;    ///< host memory per node
  std::size_t disk = 0;    ///< state files per node
};
/// `stages[s]`: plan of a rank of stage s; plans of a column are identical. `device_is_host`: as in JobCapacity.
[[nodiscard]] MemoryNeeds memory_needs(std::span<const actors::RankPlan* const> stages,
                                       const actors::TrainerOptions& options, bool device_is_host);

struct FitResult {
  bool fits = true;
  bool states_fit = true;  ///< at most the weights of --save lack space
  std::string text = {};   ///< lines for the console, each with a newline
};

[[nodiscard]] FitResult verdict(const actors::TrainerOptions& options, std::span<const actors::RankPlan> stages,
                                const JobCapacity& capacity);

}  // namespace ranvier::apps
