#include "models/ops/batch_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ranvier::models {
namespace {

using simd::Floats;

/// Rows that are read together, channel by channel, because a processor prefetches a few sequential streams. Reading
/// one channel of many rows would use a cache line, or less, of one page per row.
constexpr std::size_t rows_together = 4;

std::size_t blocks_of(const BatchNormShape& shape) {
  return runtime::ceil_divide(shape.rows, batch_norm_block_rows);
}

/// NaN stays NaN.
Floats relu(Floats sum) { return sum < 0.0f ? Floats{} : sum; }

/// Calls f(rows) for all of them, a few at a time.
template <typename F>
void for_rows_together(std::size_t begin, std::size_t end, const F& f) {
  for (std::size_t row = begin; row < end; row += rows_together)
    f(runtime::Share{row, std::min(end, row + rows_together)});
}

/// partial[block][i][C] = Σ over a block's rows of value i of f(row, c, count).
template <std::size_t sums, typename F>
void sum_blocks(runtime::ComputePool& pool, const BatchNormShape& shape, float* partial, const F& f) {
  for_each_row(pool, blocks_of(shape), [&](std::size_t block) {
    const std::size_t begin = block * batch_norm_block_rows;
    float* const to = partial + block * sums * shape.channels;
    for_rows_together(begin, std::min(shape.rows, begin + batch_norm_block_rows), [&](const runtime::Share& rows) {
      simd::for_lanes(0, shape.channels, [&](std::size_t c, auto count) {
        std::array<Floats, sums> total{};
        for (std::size_t i = 0; i < sums && rows.begin > begin; ++i)
          total[i] = simd::load(to + i * shape.channels + c, count);
        for (std::size_t row = rows.begin; row < rows.end; ++row) {
          const std::array<Floats, sums> more = f(row, c, count);
          for (std::size_t i = 0; i < sums; ++i) total[i] += more[i];
        }
        for (std::size_t i = 0; i < sums; ++i) simd::store(to + i * shape.channels + c, total[i], count);
      });
    });
  });
}

/// Calls put(i, total) for each of `width` sums over the blocks.
template <typename F>
void finish_sums(runtime::ComputePool& pool, std::size_t blocks, std::size_t width, const float* partial,
                 const F& put) {
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(width, thread, threads, 16);
    for (std::size_t i = share.begin; i < share.end; ++i) {
      double total = 0;
      for (std::size_t block = 0; block < blocks; ++block) total += double{partial[block * width + i]};
      put(i, total);
    }
  });
}

/// Normalization of a lane's channels.
template <typename T>
struct Channels {
  template <typename Count>
  Channels(const BatchNormShape& shape, const BatchNormValues& values, std::size_t c, Count count)
      : mean(simd::load(values.statistics + c, count)),
        rstd(simd::load(values.statistics + 2 * shape.channels + c, count)),
        weight(simd::load(static_cast<const T*>(values.weight) + c, count)),
        bias(simd::load(static_cast<const T*>(values.bias) + c, count)) {}

  /// ReLU's input.
  template <typename Count>
  [[nodiscard]] Floats sum(const BatchNormValues& values, Floats normal, std::size_t at, Count count) const {
    const Floats scaled = normal * weight + bias;
    return values.addend == nullptr ? scaled
                                    : scaled + simd::load(static_cast<const T*>(values.addend) + at, count);
  }

  Floats mean, rstd, weight, bias;
};

constexpr const char* operation = "batch norm";

/// Cost of reading or writing `arrays` arrays [N, C], the statistics, and some arrays [C] of the run's dtype.
runtime::WorkCost cost_of(const BatchNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t parameters, std::size_t more = 0) {
  return memory_cost(runtime::WorkKind::batch_norm, dtype,
                     bytes_of((arrays * shape.rows + parameters) * shape.channels, dtype) +
                         3 * shape.channels * sizeof(float) + more);
}

}  // namespace

std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  const std::size_t blocks = runtime::ceil_divide(shape.rows, batch_norm_block_rows);
  return blocks * 2 * shape.channels * sizeof(float);
}

void batch_norm_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                           float* statistics, const void* x, std::byte* workspace) {
  expect_kernel(dtype, operation);
  expect(shape.rows > 0, "statistics of no rows");
  if (ran_on_gpu<batch_norm_statistics_cuda>(stream, shape, dtype, statistics, x, workspace)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype, 1, 0), [=]<typename T>(runtime::ComputePool& pool, T) {
    const T* const from = static_cast<const T*>(x);
    auto* const partial = reinterpret_cast<float*>(workspace);
    const std::size_t C = shape.channels;
    const auto rows = static_cast<double>(shape.rows);
    float *const mean = statistics, *const variance = statistics + C, *const rstd = statistics + 2 * C;
    sum_blocks<1>(pool, shape, partial, [&](std::size_t row, std::size_t c, auto count) {
      return std::array{simd::load(from + row * C + c, count)};
    });
    finish_sums(pool, blocks_of(shape), C, partial,
                [&](std::size_t c, double total) { mean[c] = static_cast<float>(total / rows); });
    sum_blocks<1>(pool, shape, partial, [&](std::size_t row, std::size_t c, auto count) {
      const Floats difference = simd::load(from + row * C + c, count) - simd::load(mean + c, count);
      return std::array{difference * difference};
    });
    finish_sums(pool, blocks_of(shape), C, partial, [&](std::size_t c, double total) {
      variance[c] = static_cast<float>(total / rows);
      rstd[c] = 1.0f / std::sqrt(variance[c] + shape.epsilon);
    });
  });
}

void batch_norm_fixed_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                 float* statistics, const void* mean, const void* variance) {
  expect_kernel(dtype, operation);
  if (ran_on_gpu<batch_norm_fixed_statistics_cuda>(stream, shape, dtype, statistics, mean, variance)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype, 0, 2), [=]<typename T>(runtime::ComputePool&, T) {
    const std::size_t C = shape.channels;
    for (std::size_t c = 0; c < C; ++c) {
      statistics[c] = runtime::to_float(static_cast<const T*>(mean)[c]);
      statistics[C + c] = runtime::to_float(static_cast<const T*>(variance)[c]);
      statistics[2 * C + c] = 1.0f / std::sqrt(statistics[C + c] + shape.epsilon);
    }
  });
}

void batch_norm_forward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                        const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  if (ran_on_gpu<batch_norm_forward_cuda>(stream, shape, dtype, y, values)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype, values.addend == nullptr ? 2 : 3, 2),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 const T* const x = static_cast<const T*>(values.x);
                 pool.run([&](int thread, int threads) {
                   const auto share = runtime::share_of(shape.rows, thread, threads);
                   for_rows_together(share.begin, share.end, [&](const runtime::Share& rows) {
                     simd::for_lanes(0, shape.channels, [&](std::size_t c, auto count) {
                       const Channels<T> channels(shape, values, c, count);
                       for (std::size_t row = rows.begin; row < rows.end; ++row) {
                         const std::size_t at = row * shape.channels + c;
                         const Floats normal = (simd::load(x + at, count) - channels.mean) * channels.rstd;
                         const Floats sum = channels.sum(values, normal, at, count);
                         simd::store(static_cast<T*>(y) + at, values.relu ? relu(sum) : sum, count);
                       }
                     });
                   });
                 });
               });
}

void batch_norm_backward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                         const BatchNormBackward& arrays, const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  expect(arrays.d_addend == nullptr || arrays.d_addend != arrays.dy, "a gradient that is overwritten");
  const std::size_t of_addend = (values.addend != nullptr ? 1u : 0u) + (arrays.d_addend != nullptr ? 1u : 0u);
  if (ran_on_gpu<batch_norm_backward_cuda>(stream, shape, dtype, arrays, values)) return;
  const runtime::WorkCost cost = cost_of(shape, dtype, 3 + of_addend, 2, 2 * shape.channels * sizeof(float));
  launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) {
    const T* const x = static_cast<const T*>(values.x);
    const T* const dy = static_cast<const T*>(arrays.dy);
    const std::size_t C = shape.channels;
    auto* const partial = reinterpret_cast<float*>(arrays.workspace);
    /// Normalized x, and dy where ReLU's input is positive.
    const auto look = [&](const Channels<T>& channels, std::size_t at, auto count) {
      const Floats normal = (simd::load(x + at, count) - channels.mean) * channels.rstd;
      const Floats gradient = simd::load(dy + at, count);
      if (!values.relu) return std::array{normal, gradient};
      return std::array{normal, channels.sum(values, normal, at, count) <= 0.0f ? Floats{} : gradient};
    };
    sum_blocks<2>(pool, shape, partial, [&](std::size_t row, std::size_t c, auto count) {
      const auto [normal, gradient] = look(Channels<T>(shape, values, c, count), row * C + c, count);
      return std::array{gradient * normal, gradient};
    });
    finish_sums(pool, blocks_of(shape), 2 * C, partial,
                [&](std::size_t i, double total) { arrays.sums[i] = static_cast<float>(total); });
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(shape.rows, thread, threads);
      const float part = arrays.fixed ? 0.0f : 1.0f / static_cast<float>(shape.rows);
      for_rows_together(share.begin, share.end, [&](const runtime::Share& rows) {
        simd::for_lanes(0, C, [&](std::size_t c, auto count) {
          const Channels<T> channels(shape, values, c, count);
          const Floats of_normal = simd::load(arrays.sums + c, count) * part;
          const Floats mean = simd::load(arrays.sums + C + c, count) * part;
          for (std::size_t row = rows.begin; row < rows.end; ++row) {
            const std::size_t at = row * C + c;
            const auto [normal, gradient] = look(channels, at, count);
            if (arrays.d_addend != nullptr) simd::store(static_cast<T*>(arrays.d_addend) + at, gradient, count);
            simd::store(static_cast<T*>(arrays.dx) + at,
                        (gradient - mean - normal * of_normal) * channels.rstd * channels.weight, count);
          }
        });
      });
    });
  });
}

}  // namespace ranvier::models
