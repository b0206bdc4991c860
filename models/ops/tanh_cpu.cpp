#include "models/ops/tanh.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/small_task.hpp"
#include "runtime/host/compute_pool.hpp"

#include <cmath>

namespace ranvier::models {
namespace {

constexpr std::size_t least = 4096;  // minimum number of elements for a second thread

/// Calls f(i) for every element, on the pool's threads.
template <typename F>
void for_each_element(runtime::ComputePool& pool, std::size_t n, const F& f) {
  run_pieces(pool, n / least, [&](int thread, int threads) {
    const auto share = runtime::share_of(n, thread, threads, 64);
    for (std::size_t i = share.begin; i < share.end; ++i) f(i);
  });
}

}  // namespace

void tanh_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  expect_kernel(dtype, "tanh");
  if (ran_on_gpu<tanh_forward_cuda>(stream, dtype, y, x, n)) return;
  const runtime::WorkCost cost = memory_cost(runtime::WorkKind::activation, dtype, bytes_of(2 * n, dtype));
  launch_typed(stream, dtype, cost, [=](runtime::ComputePool& pool, auto type) {
    using T = decltype(type);
    auto* const to = static_cast<T*>(y);
    auto* const from = static_cast<const T*>(x);
    for_each_element(pool, n,
                     [&](std::size_t i) { to[i] = runtime::from_float<T>(std::tanh(runtime::to_float(from[i]))); });
  });
}

void tanh_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n) {
  expect_kernel(dtype, "tanh");
  if (ran_on_gpu<tanh_backward_cuda>(stream, dtype, d, y, n)) return;
  const runtime::WorkCost cost = memory_cost(runtime::WorkKind::activation, dtype, bytes_of(3 * n, dtype));
  launch_typed(stream, dtype, cost, [=](runtime::ComputePool& pool, auto type) {
    using T = decltype(type);
    auto* const gradient = static_cast<T*>(d);
    auto* const values = static_cast<const T*>(y);
    for_each_element(pool, n, [&](std::size_t i) {
      const float value = runtime::to_float(values[i]);
      gradient[i] = runtime::from_float<T>(runtime::to_float(gradient[i]) * (1 - value * value));
    });
  });
}

}  // namespace ranvier::models
