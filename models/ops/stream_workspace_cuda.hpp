// Scratch memory of a GPU per stream, for cuBLASLt and partial sums. Allocated at a stream's first use and kept until
// the process ends (the device's budget includes it), also for a later stream with the same CUDA handle. Functions are
// defined if with_cuda is true (runtime/device/cuda_build.hpp); sizes always, for memory planning. Loop thread only.
#pragma once

#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models::cuda {

/// cuBLASLt's kernels on Hopper need 32 MiB. A sum over K that is split stores each part in float: 25 MiB for the
/// weight gradient of 1280 × 5120. 128 MiB hold four of these, or three of 1600 × 6400.
inline constexpr std::size_t stream_workspace_bytes = std::size_t{128} << 20;
inline constexpr std::size_t stream_sums_floats = std::size_t{1} << 18;  // columns of the widest multiplication
inline constexpr std::size_t stream_scratch_bytes =
    stream_workspace_bytes + stream_sums_floats * sizeof(float);  // workspace and sums

/// Aligned to 256 bytes.
[[nodiscard]] std::byte* stream_workspace(runtime::StreamView stream);

/// [stream_sums_floats], separate from the workspace: for results of a multiplication that uses all of it.
[[nodiscard]] float* stream_sums(runtime::StreamView stream);

/// Frees the workspace of a stream whose work is done. A later use allocates a new one.
void release_stream_workspace(runtime::StreamView stream);

}  // namespace ranvier::models::cuda
