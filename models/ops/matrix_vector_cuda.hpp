// The GPU's kernel behind matrix_vector.hpp; arguments are checked there. It returns at once. Loop thread only.
#pragma once

#include "models/ops/matrix_vector.hpp"

namespace ranvier::models {

void matrix_vector_cuda(runtime::StreamView stream, const MatrixVectorShape& shape,
                        const MatrixVectorArrays& arrays);

}  // namespace ranvier::models
