// SwiGLU (Shazeer 2020): swiglu(gate, up) = silu(gate) · up, silu(x) = x / (1 + e^-x).
//
// Letters: N rows, F channels. A row of gate_up [N, 2F] is F gates, then F values that they let through.
#pragma once

#include "models/ops/backends.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::models {

/// y[N, F] = swiglu of gate_up[N, 2F]
void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels);

/// gate_up[N, 2F] = its gradient for d[N, F], the gradient of y; and d = y: what the weight gradient of the next
/// product needs, at no cost here, so that forward need not keep it.
void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, void* gate_up, std::size_t rows,
                     std::size_t channels);

// Their kernels.
OnCpu<decltype(swiglu_forward)> swiglu_forward_cpu;
OnCuda<decltype(swiglu_forward)> swiglu_forward_cuda;
OnCpu<decltype(swiglu_backward)> swiglu_backward_cpu;
OnCuda<decltype(swiglu_backward)> swiglu_backward_cuda;

}  // namespace ranvier::models
