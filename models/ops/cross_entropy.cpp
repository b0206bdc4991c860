#include "models/ops/cross_entropy.hpp"

#include "models/ops/cross_entropy_cpu.hpp"
#include "models/ops/expect_kernel.hpp"

namespace ranvier::models {

void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays) {
  expect_kernel(stream, dtype, "cross entropy");
  stream.launch([=](runtime::ComputePool& pool) { cross_entropy_cpu(pool, shape, dtype, arrays); });
}

}  // namespace ranvier::models
