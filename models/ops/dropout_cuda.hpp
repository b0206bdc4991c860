// The GPU's kernel behind dropout.hpp; arguments are checked there. It returns at once. Loop thread only.
#pragma once

#include "models/ops/dropout.hpp"

namespace ranvier::models {

void dropout_cuda(runtime::StreamView stream, void* x, runtime::DType dtype, int samples,
                  std::size_t elements_per_sample, const Dropout& options);

}  // namespace ranvier::models
