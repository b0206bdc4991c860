// GELU (Hendrycks and Gimpel 2016) in either form: x · Φ(x) with the cumulative normal distribution Φ.
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

// GPU kernels.
decltype(gelu_forward) gelu_forward_cuda;
decltype(gelu_backward) gelu_backward_cuda;

}  // namespace ranvier::models
