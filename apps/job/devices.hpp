// Devices of a rank: one for computing, one for writing files and reports. Loop thread only.
#pragma once

#include "apps/job/rank_run.hpp"
#include "runtime/device/device.hpp"

#include <memory>

namespace ranvier::apps {

/// Compute threads: --threads, or else the rank's share of its node's cores; 1 on a GPU.
[[nodiscard]] int device_threads(const TrainOptions& options, const runtime::MpiSession& session);

struct Devices {
  std::unique_ptr<runtime::Device> compute;  ///< selected by --device
  std::unique_ptr<runtime::Device> host;     ///< one thread
};

/// Creates them; a later failure on one of them stops the loop with its error. Throws if the device of --device is
/// missing.
[[nodiscard]] Devices make_devices(const RankRun& run, int threads);

/// Forbids further allocations of this kind on a GPU; no effect on other devices. An allocation during a run could wait
/// for a kernel that itself waits for this rank.
void close_memory(runtime::Device& device, runtime::MemorySpace space);

}  // namespace ranvier::apps
