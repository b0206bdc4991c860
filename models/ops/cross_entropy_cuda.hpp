// The GPU's kernels behind cross_entropy.hpp; arguments are checked there. They return at once, need no
// `exponentials`, and read the logits once, or twice and write them once for the gradient. Loop thread only.
#pragma once

#include "models/ops/cross_entropy.hpp"

namespace ranvier::models {

void cross_entropy_cuda(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                        const CrossEntropyArrays& arrays);

}  // namespace ranvier::models
