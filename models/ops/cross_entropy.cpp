#include "models/ops/cross_entropy.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays) {
  expect_kernel(dtype, "cross entropy");
  on_device<cross_entropy_cpu, cross_entropy_cuda>(stream, shape, dtype, arrays);
}

}  // namespace ranvier::models
