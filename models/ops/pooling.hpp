// Pooling: maximum of each patch, and mean of a complete image.
//
// Letters: as in patches.hpp; a pooled image is [B, P, Q, C].
#pragma once

#include "models/ops/patches.hpp"

#include <cstdint>

namespace ranvier::models {

/// y[B, P, Q, C] = maximum of each patch, without pixels outside of the image; NaN if one is NaN. Also places[B, P, Q,
/// C] = number of that pixel in the patch, the first of equal ones.
void max_pool_forward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* y,
                      std::uint8_t* places, const void* x);
/// dx[B, H, W, C] = per pixel, the sum of dy over the patches whose maximum it was, in their order.
void max_pool_backward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* dx,
                       const void* dy, const std::uint8_t* places);

struct MeanPoolShape {
  std::size_t samples = 0;   ///< B
  std::size_t pixels = 0;    ///< H·W
  std::size_t channels = 0;  ///< C
};
/// y[B, C] = means over the pixels of x[B, H·W, C], summed in float in the order of the pixels.
void mean_pool_forward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* y,
                       const void* x);
void mean_pool_backward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* dx,
                        const void* dy);

// GPU kernels.
decltype(max_pool_forward) max_pool_forward_cuda;
decltype(max_pool_backward) max_pool_backward_cuda;
decltype(mean_pool_forward) mean_pool_forward_cuda;
decltype(mean_pool_backward) mean_pool_backward_cuda;

}  // namespace ranvier::models
