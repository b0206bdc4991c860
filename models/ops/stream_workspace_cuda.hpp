// Memory of a GPU that work on one stream may use between its start and its end: cuBLASLt's scratch, partial sums.
// Made at a stream's first use of it and kept until the process ends (the device's budget leaves room for it), also
// for a later stream of the same name to CUDA. Functions are defined where with_cuda is true (runtime/cuda_build.hpp);
// sizes are for whoever plans memory, too. Loop thread only.
#pragma once

#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::models::cuda {

/// cuBLASLt's kernels on Hopper want 32 MiB. A sum over K that is split keeps each part in float: 25 MiB for the
/// gradient of a weight of 1280 × 5120, of which four have room here, or three of 1600 × 6400.
inline constexpr std::size_t stream_workspace_bytes = std::size_t{128} << 20;
inline constexpr std::size_t stream_sums_floats = std::size_t{1} << 18;  // columns of the widest product
inline constexpr std::size_t stream_scratch_bytes =
    stream_workspace_bytes + stream_sums_floats * sizeof(float);  // both

/// Aligned to 256 bytes.
[[nodiscard]] std::byte* stream_workspace(runtime::StreamView stream);

/// [stream_sums_floats] that are no part of it: sums which come out of a product that uses all of it.
[[nodiscard]] float* stream_sums(runtime::StreamView stream);

/// Frees the workspace of a stream whose work is done; if it is used again it gets another.
void release_stream_workspace(runtime::StreamView stream);

}  // namespace ranvier::models::cuda
