// What a device computes at most: the rate that MFU is a share of. Loop thread only.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <functional>

namespace ranvier::apps {

/// FLOP per second of a large matrix product on `stream`, the best of several; 0 where the device has no room for it
/// beside what is planned. Blocks. Ranks that share a machine are timed together: each calls `meet` once it is ready,
/// also where it has no room.
[[nodiscard]] double measure_peak_flops(runtime::StreamView stream, runtime::DType dtype,
                                        const std::function<void()>& meet);

}  // namespace ranvier::apps
