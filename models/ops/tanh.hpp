// Hyperbolic tangent, for the pooled rows of BERT's classifiers.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

/// y[i] = tanh(x[i]), computed in float; y may be x.
void tanh_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n);

/// d[i] = d[i] · (1 - y[i]²) for y = tanh(x).
void tanh_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n);

// GPU kernels.
decltype(tanh_forward) tanh_forward_cuda;
decltype(tanh_backward) tanh_backward_cuda;

}  // namespace ranvier::models
