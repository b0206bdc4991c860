// GELU in the tanh form of GPT-2: gelu(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::models {

/// y[i] = gelu(x[i])
void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n);

/// d[i] = d[i] · gelu'(x[i]), and x[i] = gelu(x[i]): what the weight gradient of the next product needs, at
/// no cost here, so that forward need not keep it.
void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, void* x, std::size_t n);

}  // namespace ranvier::models
