#include "models/ops/correct_predictions.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {
namespace {

template <typename T>
bool is_hit(const T* logits, std::size_t V, std::size_t target) {
  const float at_target = runtime::to_float(logits[target]);
  for (std::size_t i = 0; i < V; ++i) {
    const float other = runtime::to_float(logits[i]);
    if (!(i < target ? other < at_target : other <= at_target)) return false;
  }
  return true;
}

}  // namespace

void count_correct_cpu(runtime::ComputePool&, const CrossEntropyShape& shape, runtime::DType dtype, double* correct,
                       const void* logits, const std::int32_t* targets) {
  runtime::with_float_type(dtype, [&](auto type) {
    auto* const all = static_cast<const decltype(type)*>(logits);
    std::size_t count = 0;
    for (std::size_t row = 0; row < shape.rows; ++row) {
      const std::int32_t target = targets[row];
      const bool has_one = target >= 0 && static_cast<std::size_t>(target) < shape.vocab_size;
      if (has_one && is_hit(all + row * shape.stride, shape.vocab_size, static_cast<std::size_t>(target))) ++count;
    }
    *correct = static_cast<double>(count);
  });
}

}  // namespace ranvier::models
