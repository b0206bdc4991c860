#include "models/ops/cross_entropy.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays) {
  expect_kernel(dtype, "cross entropy");
  const std::size_t read = shape.rows * shape.vocab_size, written = arrays.gradient ? shape.rows * shape.stride : 0;
  const runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::cross_entropy, dtype,
                  bytes_of(read + written, dtype) + shape.rows * sizeof(std::int32_t) + sizeof(double));
  on_device<cross_entropy_cpu, cross_entropy_cuda>(stream, cost, shape, dtype, arrays);
}

}  // namespace ranvier::models
