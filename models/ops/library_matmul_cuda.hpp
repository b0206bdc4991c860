// Matrix products through cuBLASLt: matmul_cuda.cu's only way to it, and library_matmul_cuda.cpp the only file that
// knows its API. An algorithm is asked for at the first product of a shape and kept, for all streams of a GPU; each
// stream has its own scratch (stream_workspace_cuda.hpp). Loop thread only.
#pragma once

#include "models/ops/matmul.hpp"

namespace ranvier::models {

/// False, and nothing is done, where cuBLASLt has no algorithm. Sums in float without TF32; the same bits for the
/// same shape, strides and alignment on the same kind of GPU. The bias is of c_dtype.
[[nodiscard]] bool library_matmul_cuda(runtime::StreamView stream, const MatmulShape& shape,
                                       const MatmulArrays& arrays);

}  // namespace ranvier::models
