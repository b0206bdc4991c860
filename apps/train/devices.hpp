// What a rank computes on, and what it writes files and reports with. Loop thread only.
#pragma once

#include "apps/train/rank_run.hpp"
#include "runtime/device.hpp"

#include <memory>

namespace ranvier::apps {

/// A rank's share of the cores of its node, unless --threads says otherwise. The host's threads mean nothing to a
/// GPU.
[[nodiscard]] int device_threads(const TrainOptions& options, const runtime::MpiSession& session);

struct Devices {
  std::unique_ptr<runtime::Device> compute;  ///< as --device says
  std::unique_ptr<runtime::Device> host;     ///< one thread
};

/// What fails on them later ends the loop with its error. Throws where --device names what is not there.
[[nodiscard]] Devices make_devices(const RankRun& run, int threads);

/// From here on no memory of this kind is taken: on a GPU an allocation in the middle of a run may wait for a
/// kernel that waits for this rank. Elsewhere without effect.
void close_memory(runtime::Device& device, runtime::MemorySpace space);

}  // namespace ranvier::apps
