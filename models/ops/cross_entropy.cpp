#include "models/ops/cross_entropy.hpp"

#include "models/ops/cross_entropy_cpu.hpp"
#include "models/ops/cross_entropy_cuda.hpp"
#include "models/ops/expect_kernel.hpp"
#include "runtime/cuda_build.hpp"

namespace ranvier::models {

void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays) {
  expect_kernel(dtype, "cross entropy");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return cross_entropy_cuda(stream, shape, dtype, arrays);
  }
  stream.launch([=](runtime::ComputePool& pool) { cross_entropy_cpu(pool, shape, dtype, arrays); });
}

}  // namespace ranvier::models
