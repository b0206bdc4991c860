// The CPU's kernels behind dropout.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/dropout.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void dropout_cpu(runtime::ComputePool& pool, void* x, runtime::DType dtype, int samples,
                 std::size_t elements_per_sample, const Dropout& options);

}  // namespace ranvier::models
