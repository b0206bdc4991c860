// The CPU's kernels behind cross_entropy.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/cross_entropy.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void cross_entropy_cpu(runtime::ComputePool& pool, const CrossEntropyShape& shape, runtime::DType dtype,
                       const CrossEntropyArrays& arrays);

}  // namespace ranvier::models
