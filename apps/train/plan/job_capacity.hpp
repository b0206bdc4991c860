// What the ranks of a job have for what it plans: on devices, in memory and on disks. Loop thread only, before it
// runs.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::apps {

/// None: not known, as of a cluster that is imagined.
struct JobCapacity {
  std::optional<std::size_t> device_bytes;  ///< of a rank
  std::optional<std::size_t> host_bytes;    ///< of a node, for all its ranks
  std::optional<std::size_t> disk_bytes;    ///< of a node, where states live in files
  std::optional<std::size_t> save_bytes;    ///< where --save writes
  std::size_t saved_bytes = 0;              ///< what it writes there
  double states_beside_save = 0;            ///< share of a node's states in files that is on that disk
  bool device_is_host = false;              ///< what a rank's device takes comes out of its node's memory
  bool may_change_prefetch = true;          ///< nobody asked for a certain --prefetch
};

/// All ranks call it. Where ranks and machines differ, the one with the least decides.
[[nodiscard]] JobCapacity capacity_of(runtime::MpiSession& session, const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
