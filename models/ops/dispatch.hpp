// Checks of an operation before it launches, the choice of its kernel's device, and loops of CPU kernels.
//
// Operations and GPU kernels are called on the loop thread; GPU kernels return at once. CPU kernels run on the thread
// that executes the stream's work, after the call has returned: they hold copies of shapes and addresses.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"

#include <cstddef>

namespace ranvier::models {

/// Throws ErrorCode::internal unless `operation` has kernels for `dtype`.
inline void expect_kernel(runtime::DType dtype, const char* operation) {
  using runtime::DType;
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} of {}", operation,
         to_string(dtype));
}

using runtime::on_gpu;
using runtime::ran_on_gpu;

/// Bytes of n elements.
[[nodiscard]] inline std::size_t bytes_of(std::size_t n, runtime::DType dtype) { return n * size_of(dtype); }

/// Launches work(pool, type) on the host, with a value of the type for `dtype`:
///
///   launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) { … });
template <typename Work>
void launch_typed(runtime::StreamView stream, runtime::DType dtype, const runtime::WorkCost& cost, Work work) {
  stream.launch(cost, [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) { work(pool, type); });
  });
}

/// Calls pool.run(task), or task(0, 1) if there is one piece, which saves about 1 µs of synchronization with other
/// threads.
template <typename F>
void run_pieces(runtime::ComputePool& pool, std::size_t pieces, const F& task) {
  if (pieces <= 1) return task(0, 1);
  pool.run(task);
}

/// Calls f(row) for each of these rows, on the pool's threads.
template <typename F>
void for_each_row(runtime::ComputePool& pool, std::size_t rows, const F& f) {
  run_pieces(pool, rows, [&](int thread, int threads) {
    const auto share = runtime::share_of(rows, thread, threads);
    for (std::size_t row = share.begin; row < share.end; ++row) f(row);
  });
}

}  // namespace ranvier::models
