// The CPU's kernel behind matrix_vector.hpp; arguments are checked there. It blocks until the result is written.
#pragma once

#include "models/ops/matrix_vector.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void matrix_vector_cpu(runtime::ComputePool& pool, const MatrixVectorShape& shape,
                       const MatrixVectorArrays& arrays);

}  // namespace ranvier::models
