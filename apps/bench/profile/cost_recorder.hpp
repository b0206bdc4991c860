// What operations say that they cost on a device, without carrying them out. Loop thread only.
#pragma once

#include "runtime/device.hpp"
#include "runtime/stream.hpp"
#include "runtime/work_cost.hpp"

#include <functional>
#include <vector>

namespace ranvier::apps {

/// The costs of all that `queue` launches on the stream that it is given, which computes nothing. Memory counts as on
/// `device`. Throws ErrorCode::internal for work that states no cost.
[[nodiscard]] std::vector<runtime::WorkCost> costs_of(const runtime::Device& device,
                                                      const std::function<void(runtime::StreamView)>& queue);

}  // namespace ranvier::apps
