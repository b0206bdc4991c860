// Matrix products through cuBLASLt: the only way to it, and library_matmul_cuda.cpp the only file that knows its
// API. A product's algorithm is the library's first answer, or what a measurement chose (product_choice.hpp), and
// kept for all streams of a GPU; each stream has its own scratch (stream_workspace_cuda.hpp). Loop thread only.
#pragma once

#include "models/ops/matmul.hpp"

#include <cstdint>
#include <functional>

namespace ranvier::models {

/// What the library does with a product beside storing it, where it can: half precision, results without gaps.
struct Epilogue {
  enum class Kind : std::uint8_t {
    none,
    gelu,           ///< array[M, N] = a·b + bias, and c = gelu of that
    gelu_backward,  ///< c = (a·b) · gelu'(array[M, N])
    column_sums,    ///< array[N] = Σ_k b[K, N], of c_dtype, and c (+)= a·b
    sum,            ///< c = a·b + bias + array[M, N]
  };
  Kind kind = Kind::none;
  void* array = nullptr;
};

/// False, and nothing is done, if cuBLASLt has no algorithm or fails, which it warns of on stderr; with an epilogue
/// also if none was measured to be worth it. Throws ErrorCode::device if the GPU no longer works. Sums in float
/// without TF32; the same bits for the same shape, strides, alignment and algorithm on the same kind of GPU. The bias
/// has c_dtype.
[[nodiscard]] bool library_matmul_cuda(runtime::StreamView stream, const MatmulShape& shape,
                                       const MatmulArrays& arrays, const Epilogue& epilogue = {});

/// Whether products are being measured, and this one with its epilogue has not been.
[[nodiscard]] bool library_weighs_cuda(runtime::StreamView stream, const MatmulShape& shape,
                                       const MatmulArrays& arrays, const Epilogue& epilogue);

/// Chooses once between the product with its epilogue, followed by `rest`, and `apart`, whichever takes less time:
/// from then on library_matmul_cuda() says which. Without `apart` the epilogue is taken wherever it is possible.
/// Runs all of them several times, on the arrays as they are; blocks.
void library_weigh_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const Epilogue& epilogue, const std::function<void()>& rest,
                        const std::function<void()>& apart);

}  // namespace ranvier::models
