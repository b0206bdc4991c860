#include "models/ops/correct_predictions.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void count_correct(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   double* correct, const void* logits, const std::int32_t* targets) {
  expect_kernel(dtype, "correct predictions");
  const runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::cross_entropy, dtype,
                  bytes_of(shape.rows * shape.vocab_size, dtype) + shape.rows * sizeof(std::int32_t));
  on_device<count_correct_cpu, count_correct_cuda>(stream, cost, shape, dtype, correct, logits, targets);
}

}  // namespace ranvier::models
