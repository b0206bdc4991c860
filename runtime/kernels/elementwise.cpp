#include "runtime/kernels/elementwise.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise_cpu.hpp"
#include "runtime/kernels/elementwise_cuda.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace ranvier::runtime {
namespace {

using cpu::chunk_elements;

constexpr std::size_t line_bytes = 64;

void check_float(DType dtype, const char* kernel) {
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} does not take {}", kernel,
         to_string(dtype));
}

/// Cost of a copy of `bytes`: in memory, or over the link between device and host.
WorkCost copy_cost(StreamView stream, const void* to, const void* from, std::size_t bytes) {
  const Device& device = stream.device();
  if (!device.apart()) return elementwise_cost(2 * bytes);
  const bool to_host = device.host_reaches(to);
  if (to_host == device.host_reaches(from)) return elementwise_cost(2 * bytes);
  WorkCost cost = memory_cost(WorkKind::host_copy, DType::f32, bytes);
  cost.direction = to_host ? CopyDirection::to_host : CopyDirection::to_device;
  return cost;
}

/// Calls part(begin, end) for parts of [0, items), on the pool's threads if there is enough work for them.
template <typename Part>
void in_parts(ComputePool& pool, std::size_t items, std::size_t item_bytes, Part&& part) {
  constexpr std::size_t bytes_worth_waking = 64 << 10;
  if (items * item_bytes < bytes_worth_waking) return part(std::size_t{0}, items);
  const std::size_t grain = std::max<std::size_t>(1, line_bytes / item_bytes);
  pool.run([&](int thread, int threads) {
    const Share share = share_of(items, thread, threads, grain);
    if (share.begin != share.end) part(share.begin, share.end);
  });
}

template <typename F>
void in_chunks(std::size_t begin, std::size_t end, F&& f) {
  for (std::size_t at = begin; at < end; at += chunk_elements) f(at, std::min(chunk_elements, end - at));
}

template <typename To, typename From>
void cast_part(To* to, const From* from, std::size_t count) {
  if constexpr (std::is_same_v<From, float>) {
    cpu::from_floats(to, from, count);
  } else if constexpr (std::is_same_v<To, float>) {
    cpu::to_floats(to, from, count);
  } else if constexpr (std::is_same_v<To, From>) {
    std::memmove(to, from, count * sizeof(To));
  } else {
    in_chunks(0, count, [&](std::size_t at, std::size_t n) {
      alignas(line_bytes) std::array<float, chunk_elements> values;
      cpu::to_floats(values.data(), from + at, n);
      cpu::from_floats(to + at, values.data(), n);
    });
  }
}

template <typename T>
void scale_part(T* to, float factor, std::size_t begin, std::size_t end) {
  if constexpr (std::is_same_v<T, float>) {
    cpu::scale(to + begin, factor, end - begin);
  } else {
    in_chunks(begin, end, [&](std::size_t at, std::size_t n) {
      alignas(line_bytes) std::array<float, chunk_elements> values;
      cpu::to_floats(values.data(), to + at, n);
      cpu::scale(values.data(), factor, n);
      cpu::from_floats(to + at, values.data(), n);
    });
  }
}

/// Calls f(offset in `a`, offset in `b`, n) for each range of [begin, end) that is contiguous in both.
template <typename F>
void in_stretches(const StridedLayout& a, const StridedLayout& b, std::size_t begin, std::size_t end, F&& f) {
  while (begin < end) {
    const std::size_t n = std::min({end - begin, a.together(begin), b.together(begin)});
    f(a.at(begin), b.at(begin), n);
    begin += n;
  }
}

template <typename T>
float block_sum_of_squares(const T* from, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    return cpu::sum_of_squares(from, n);
  } else {
    alignas(line_bytes) std::array<float, squares_block_elements> values;
    cpu::to_floats(values.data(), from, n);
    return cpu::sum_of_squares(values.data(), n);
  }
}

}  // namespace

void copy(StreamView stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (ran_on_gpu<copy_cuda>(stream, to, from, bytes)) return;
  stream.launch(copy_cost(stream, to, from, bytes), [=](ComputePool& pool) {
    in_parts(pool, bytes, 1, [&](std::size_t begin, std::size_t end) {
      std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, end - begin);
    });
  });
}

void copy_runs(StreamView stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
               std::size_t run_bytes, std::size_t runs) {
  expect(runs <= 1 || (to_stride >= run_bytes && from_stride >= run_bytes),
         "runs of {} bytes are copied that begin {} and {} apart", run_bytes, from_stride, to_stride);
  if (runs <= 1) return copy(stream, to, from, run_bytes * runs);
  copy(stream, to, {run_bytes, to_stride}, from, {run_bytes, from_stride}, 1, run_bytes * runs);
}

void copy(StreamView stream, void* to, const StridedLayout& to_runs, const void* from,
          const StridedLayout& from_runs, std::size_t width, std::size_t n) {
  const bool flat = to_runs.contiguous() && from_runs.contiguous();
  expect(to_runs.contiguous() || from_runs.contiguous() ||
             (to_runs.run == from_runs.run && to_runs.first % to_runs.run == from_runs.first % from_runs.run),
         "{} elements in runs of {} are copied to runs of {}", n, from_runs.run, to_runs.run);
  if (n == 0) return;
  if (flat) {
    return copy(stream, static_cast<std::byte*>(to) + to_runs.first * width,
                static_cast<const std::byte*>(from) + from_runs.first * width, n * width);
  }
  if constexpr (with_cuda) {
    if (on_gpu(stream)) {
      // Three parts: the rest of the first run, the complete runs, the start of the last run.
      const StridedLayout& runs = to_runs.contiguous() ? from_runs : to_runs;
      const auto stride = [&](const StridedLayout& of) { return (of.contiguous() ? runs.run : of.stride) * width; };
      for (std::size_t x = 0; x < n;) {
        const std::size_t together = std::min(n - x, runs.together(x));
        const std::size_t whole = together == runs.run ? (n - x) / runs.run : 1;
        copy_runs_cuda(stream, static_cast<std::byte*>(to) + to_runs.at(x) * width, stride(to_runs),
                       static_cast<const std::byte*>(from) + from_runs.at(x) * width, stride(from_runs),
                       together * width, whole);
        x += together * whole;
      }
      return;
    }
  }
  stream.launch(copy_cost(stream, to, from, n * width), [=](ComputePool& pool) {
    in_parts(pool, n, width, [&](std::size_t begin, std::size_t end) {
      in_stretches(to_runs, from_runs, begin, end, [&](std::size_t to_at, std::size_t from_at, std::size_t count) {
        std::memcpy(static_cast<std::byte*>(to) + to_at * width,
                    static_cast<const std::byte*>(from) + from_at * width, count * width);
      });
    });
  });
}

void fill_zero(StreamView stream, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (ran_on_gpu<fill_zero_cuda>(stream, to, bytes)) return;
  stream.launch(elementwise_cost(bytes), [=](ComputePool& pool) {
    in_parts(pool, bytes, 1, [&](std::size_t begin, std::size_t end) {
      std::memset(static_cast<std::byte*>(to) + begin, 0, end - begin);
    });
  });
}

void cast(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n,
          const StridedLayout& to_runs, const StridedLayout& from_runs) {
  check_float(to_dtype, "cast");
  check_float(from_dtype, "cast");
  if (n == 0) return;
  if (ran_on_gpu<cast_cuda>(stream, to, to_dtype, from, from_dtype, n, to_runs, from_runs)) return;
  const std::size_t bytes = n * (size_of(to_dtype) + size_of(from_dtype));
  stream.launch(elementwise_cost(bytes, from_dtype), [=](ComputePool& pool) {
    with_float_type(to_dtype, [&]<typename To>(To) {
      with_float_type(from_dtype, [&]<typename From>(From) {
        in_parts(pool, n, std::min(sizeof(To), sizeof(From)), [&](std::size_t begin, std::size_t end) {
          in_stretches(to_runs, from_runs, begin, end,
                       [&](std::size_t to_at, std::size_t from_at, std::size_t count) {
                         cast_part(static_cast<To*>(to) + to_at, static_cast<const From*>(from) + from_at, count);
                       });
        });
      });
    });
  });
}

void scale(StreamView stream, void* to, DType dtype, float factor, std::size_t n) {
  check_float(dtype, "scale");
  if (n == 0) return;
  if (ran_on_gpu<scale_cuda>(stream, to, dtype, factor, n)) return;
  stream.launch(elementwise_cost(2 * n * size_of(dtype), dtype), [=](ComputePool& pool) {
    with_float_type(dtype, [&]<typename T>(T) {
      in_parts(pool, n, sizeof(T),
               [&](std::size_t begin, std::size_t end) { scale_part(static_cast<T*>(to), factor, begin, end); });
    });
  });
}

void add(StreamView stream, void* to, const void* from, DType dtype, std::size_t n, const StridedLayout& to_runs,
         const StridedLayout& from_runs) {
  if (dtype != DType::f64) check_float(dtype, "add");
  if (n == 0) return;
  if (ran_on_gpu<add_cuda>(stream, to, from, dtype, n, to_runs, from_runs)) return;
  stream.launch(elementwise_cost(3 * n * size_of(dtype), dtype), [=](ComputePool& pool) {
    const auto add_as = [&]<typename T>(T) {
      in_parts(pool, n, sizeof(T), [&](std::size_t begin, std::size_t end) {
        in_stretches(to_runs, from_runs, begin, end,
                     [&](std::size_t to_at, std::size_t from_at, std::size_t count) {
                       cpu::add(static_cast<T*>(to) + to_at, static_cast<const T*>(from) + from_at, count);
                     });
      });
    };
    if (dtype == DType::f64)
      add_as(double{});
    else
      with_float_type(dtype, add_as);
  });
}

void sums_of_squares(StreamView stream, float* sums, const void* from, DType dtype, std::size_t n) {
  sums_of_squares(stream, sums, 0, from, {n, n}, dtype, n);
}

void sums_of_squares(StreamView stream, float* sums, std::size_t sums_stride, const void* from,
                     const StridedLayout& runs, DType dtype, std::size_t n) {
  check_float(dtype, "sums_of_squares");
  if (n == 0) return;
  constexpr std::size_t block_elements = squares_block_elements;
  const std::size_t of_run = ceil_divide(runs.run, block_elements);  // number of blocks
  expect(runs.run > 0 && runs.first == 0 && (n <= runs.run || sums_stride >= of_run),
         "sums of squares of runs of {} elements lie {} apart", runs.run, sums_stride);
  if (ran_on_gpu<sums_of_squares_cuda>(stream, sums, sums_stride, from, runs, dtype, n)) return;
  const std::size_t blocks = n / runs.run * of_run + ceil_divide(n % runs.run, block_elements);
  const std::size_t bytes = n * size_of(dtype) + blocks * sizeof(float);
  stream.launch(elementwise_cost(bytes, dtype), [=](ComputePool& pool) {
    with_float_type(dtype, [&]<typename T>(T) {
      const auto* values = static_cast<const T*>(from);
      in_parts(pool, blocks, block_elements * sizeof(T), [&](std::size_t begin, std::size_t end) {
        for (std::size_t block = begin; block < end; ++block) {
          const std::size_t run = block / of_run, at = block % of_run * block_elements;
          sums[run * sums_stride + block % of_run] = block_sum_of_squares(
              values + run * runs.stride + at, std::min({block_elements, runs.run - at, n - run * runs.run - at}));
        }
      });
    });
  });
}

void sum(StreamView stream, double* total, const float* from, std::size_t n) {
  if (ran_on_gpu<sum_cuda>(stream, total, from, n)) return;
  stream.launch(elementwise_cost(n * sizeof(float) + sizeof(double)), [=](ComputePool&) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += from[i];
    *total = sum;
  });
}

}  // namespace ranvier::runtime
