// SwiGLU (Shazeer 2020): swiglu(gate, up) = silu(gate) · up, silu(x) = x / (1 + e^-x).
//
// Letters: N rows, F channels. A row of gate_up [N, 2F] contains F gates, then the F values that they multiply.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

/// y[N, F] = swiglu of gate_up[N, 2F]
void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels);

/// Replaces gate_up[N, 2F] by its gradient, from d[N, F], the gradient of swiglu(gate_up). Also y[N, F] =
/// swiglu(gate_up) for the weight gradient of the next linear map; null: forward saved it. y may be d.
void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                     std::size_t rows, std::size_t channels);

// GPU kernels.
decltype(swiglu_forward) swiglu_forward_cuda;
decltype(swiglu_backward) swiglu_backward_cuda;

}  // namespace ranvier::models
