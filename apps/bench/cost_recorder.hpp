// Records the stated costs of operations without executing them. Loop thread only.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/device/work_cost.hpp"

#include <functional>
#include <vector>

namespace ranvier::apps {

/// Costs of all launches of `queue` on the given stream, which executes nothing. Memory counts as on `device`. Throws
/// ErrorCode::internal for work without a stated cost.
[[nodiscard]] std::vector<runtime::WorkCost> costs_of(const runtime::Device& device,
                                                      const std::function<void(runtime::StreamView)>& queue);

}  // namespace ranvier::apps
