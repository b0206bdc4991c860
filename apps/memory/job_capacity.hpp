// Capacity available to a job: device memory, host memory and disks. Loop thread only, before the loop runs.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::apps {

/// nullopt: unknown, for instance with --world.
struct JobCapacity {
  std::optional<std::size_t> device_bytes;  ///< device memory per rank
  std::optional<std::size_t> host_bytes;    ///< host memory per node, for all its ranks
  std::optional<std::size_t> disk_bytes;    ///< free bytes per node for state files
  std::optional<std::size_t> save_bytes;    ///< free bytes on the disk of --save
  std::size_t saved_bytes = 0;              ///< bytes that --save writes
  double states_beside_save = 0;            ///< fraction of a node's state files on that disk
  bool device_is_host = false;              ///< device memory is part of its node's memory
  bool may_change_prefetch = true;          ///< --prefetch is not given
};

/// Called by all ranks. Returns the smallest values of all ranks and machines.
[[nodiscard]] JobCapacity capacity_of(runtime::MpiSession& session, const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
