#include "models/ops/cross_entropy.hpp"

#include "models/ops/bad_token.hpp"
#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ranvier::models {
namespace {

using simd::Floats;

/// Elements summed in float, 64 per lane; these sums are added in double.
constexpr std::size_t block = 64 * simd::lanes;

template <typename T>
float row_max(const T* logits, std::size_t n) {
  Floats greatest = simd::broadcast(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + simd::lanes <= n; i += simd::lanes) greatest = simd::max(simd::load(logits + i), greatest);
  float result = simd::max(greatest);
  for (; i < n; ++i) result = std::max(result, runtime::to_float(logits[i]));
  return result;
}

/// Returns Σ e^(logits[i] - max), and stores each term in `exponentials`.
template <typename T>
double sum_of_exponentials(float* exponentials, const T* logits, std::size_t n, float max) {
  double total = 0;
  for (std::size_t first = 0; first < n; first += block) {
    const std::size_t end = std::min(first + block, n);
    Floats part{};
    std::size_t i = first;
    for (; i + simd::lanes <= end; i += simd::lanes) {
      const Floats value = simd::exp(simd::load(logits + i) - max);
      simd::store(exponentials + i, value);
      part += value;
    }
    total += simd::sum(part);
    for (; i < end; ++i) {
      exponentials[i] = simd::exp(simd::broadcast(runtime::to_float(logits[i]) - max))[0];
      total += exponentials[i];
    }
  }
  return total;
}

template <typename T>
double row(T* logits, float* exponentials, std::int32_t target, const CrossEntropyShape& shape,
           const CrossEntropyArrays& arrays) {
  const std::size_t V = shape.vocab_size;
  const float max = row_max(logits, V);
  const double total = sum_of_exponentials(exponentials, logits, V, max);
  const double loss = std::log(total) + (static_cast<double>(max) - runtime::to_float(logits[target]));
  if (arrays.gradient) {
    const auto probability = static_cast<float>(1.0 / total);
    const float scale = probability * arrays.gradient_factor;
    simd::for_lanes(0, V, [&](std::size_t i, auto count) {
      simd::store(logits + i, simd::load(exponentials + i, count) * scale, count);
    });
    const float at_target = exponentials[target] * probability - 1.0f;
    logits[target] = runtime::from_float<T>(at_target * arrays.gradient_factor);
    std::fill(logits + V, logits + shape.stride, T{});
  }
  return loss;
}

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

void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays) {
  expect_kernel(dtype, "cross entropy");
  const std::size_t read = shape.rows * shape.vocab_size, written = arrays.gradient ? shape.rows * shape.stride : 0;
  const runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::cross_entropy, dtype,
                  bytes_of(read + written, dtype) + shape.rows * sizeof(std::int32_t) + sizeof(double));
  if (ran_on_gpu<cross_entropy_cuda>(stream, shape, dtype, arrays)) return;
  launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) {
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(shape.rows, thread, threads);
      float* const exponentials = arrays.exponentials + static_cast<std::size_t>(thread) * shape.stride;
      for (std::size_t i = share.begin; i < share.end; ++i) {
        const std::int32_t target = arrays.targets[i];
        T* const logits = static_cast<T*>(arrays.logits) + i * shape.stride;
        if (target == no_target) {
          arrays.row_losses[i] = 0;
          if (arrays.gradient) std::fill(logits, logits + shape.stride, T{});
          continue;
        }
        if (target < 0 || static_cast<std::size_t>(target) >= shape.vocab_size) {
          fail_bad_target(target, i, shape.vocab_size);
        }
        arrays.row_losses[i] = row(logits, exponentials, target, shape, arrays);
      }
    });
    double total = 0;
    for (std::size_t i = 0; i < shape.rows; ++i) total += arrays.row_losses[i];
    *arrays.loss = arrays.loss_factor * total;
  });
}

void count_correct(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   double* correct, const void* logits, const std::int32_t* targets) {
  expect_kernel(dtype, "correct predictions");
  const runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::cross_entropy, dtype,
                  bytes_of(shape.rows * shape.vocab_size, dtype) + shape.rows * sizeof(std::int32_t));
  if (ran_on_gpu<count_correct_cuda>(stream, shape, dtype, correct, logits, targets)) return;
  launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool&, T) {
    auto* const all = static_cast<const T*>(logits);
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
