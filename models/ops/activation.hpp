// Activation functions of MLPs and classifiers, computed in float and rounded once:
//
//   GELU    x · Φ(x) with the cumulative normal distribution Φ (Hendrycks and Gimpel 2016), in either form
//   SwiGLU  silu(gate) · up with silu(x) = x / (1 + e^-x) (Shazeer 2020)
//   tanh    for the pooled rows of BERT's classifiers
//
// Letters: n elements; N rows, F channels. A row of gate_up [N, 2F] contains F gates, then the F values that they
// multiply.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

enum class GeluForm {
  tanh,  ///< GPT-2: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
  erf,   ///< BERT: x/2 · (1 + erf(x/√2))
};

/// y[i] = gelu(x[i])
void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n,
                  GeluForm form = GeluForm::tanh);

/// d[i] = d[i] · gelu'(x[i]), and y[i] = gelu(x[i]) for the weight gradient of the next linear map. y is null if
/// forward saved it; y may be x.
void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* x, void* y, std::size_t n,
                   GeluForm form = GeluForm::tanh);

/// y[N, F] = swiglu of gate_up[N, 2F]
void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels);

/// Replaces gate_up[N, 2F] by its gradient, from d[N, F], the gradient of swiglu(gate_up). Also y[N, F] =
/// swiglu(gate_up) for the weight gradient of the next linear map; null: forward saved it. y may be d.
void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                     std::size_t rows, std::size_t channels);

/// y[i] = tanh(x[i]); y may be x.
void tanh_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n);

/// d[i] = d[i] · (1 - y[i]²) for y = tanh(x).
void tanh_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n);

// GPU kernels.
decltype(gelu_forward) gelu_forward_cuda;
decltype(gelu_backward) gelu_backward_cuda;
decltype(swiglu_forward) swiglu_forward_cuda;
decltype(swiglu_backward) swiglu_backward_cuda;
decltype(tanh_forward) tanh_forward_cuda;
decltype(tanh_backward) tanh_backward_cuda;

}  // namespace ranvier::models
