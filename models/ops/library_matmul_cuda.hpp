// Matrix multiplication with cuBLASLt; only library_matmul_cuda.cpp uses its API. The algorithm is the library's first
// proposal, or a measured choice (product_choice.hpp), and is kept for all streams of a GPU. Each stream has its own
// scratch (stream_workspace_cuda.hpp). Loop thread only.
#pragma once

#include "models/ops/matmul.hpp"

#include <cstdint>
#include <functional>

namespace ranvier::models {

/// Operation that the library fuses with a multiplication. Half precision, results without gaps between rows.
struct Epilogue {
  enum class Kind : std::uint8_t {
    none,
    gelu,           ///< array[M, N] = a·b + bias, and c = gelu(array)
    gelu_backward,  ///< c = (a·b) · gelu'(array[M, N])
    column_sums,    ///< array[N] = Σ_k b[K, N] in c_dtype, and c (+)= a·b
    sum,            ///< c = a·b + bias + array[M, N]
  };
  Kind kind = Kind::none;
  void* array = nullptr;
};

/// Queues a multiplication. Returns false and does nothing if cuBLASLt has no algorithm or fails (with a warning on
/// stderr), or if fusing the epilogue was not measured to be faster. Throws ErrorCode::device if the GPU no longer
/// works. Sums in float without TF32. Bits depend on shape, strides, alignment, algorithm and kind of GPU. The bias has
/// c_dtype.
[[nodiscard]] bool library_matmul_cuda(runtime::StreamView stream, const MatmulShape& shape,
                                       const MatmulArrays& arrays, const Epilogue& epilogue = {});

/// Times the multiplication with its epilogue followed by `rest`, and `apart`, and keeps the faster one for
/// library_matmul_cuda(). Without `apart`, uses the epilogue whenever it is possible. Runs all of them several times on
/// the arrays; blocks.
void library_weigh_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const Epilogue& epilogue, const std::function<void()>& rest,
                        const std::function<void()>& apart);

/// Runs the multiplication with its epilogue followed by `rest`, or `apart`, the same work without fusion, if the
/// library cannot fuse it or that is not faster. Calls library_weigh_cuda() for new ones while choices are measured.
void library_fused_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const Epilogue& epilogue, const std::function<void()>& rest,
                        const std::function<void()>& apart);

}  // namespace ranvier::models
