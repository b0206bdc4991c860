#include "runtime/kernels/elementwise_cuda.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/packs_cuda.cuh"

#include <type_traits>

namespace ranvier::runtime {
namespace {

template <typename To, typename From>
struct Cast {
  // Width of the wider type: accesses to both arrays are then contiguous across a warp.
  static constexpr int width = std::min(cuda::full_width<To>, cuda::full_width<From>);
  To* to;
  const From* from;

  template <int N>
  __device__ void apply(std::size_t to_at, std::size_t from_at) const {
    float values[N];
    cuda::load(values, from + from_at);
    cuda::store(to + to_at, values);
  }
};

template <typename T>
struct Scale {
  static constexpr int width = cuda::full_width<T>;
  T* to;
  float factor;

  template <int N>
  __device__ void apply(std::size_t at) const {
    float values[N];
    cuda::load(values, to + at);
    for (int i = 0; i < N; ++i) values[i] *= factor;
    cuda::store(to + at, values);
  }
};

template <typename T>
struct Add {
  static constexpr int width = cuda::full_width<T>;
  T* to;
  const T* from;

  template <int N>
  __device__ void apply(std::size_t to_at, std::size_t from_at) const {
    using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Value sums[N], terms[N];
    cuda::load(sums, to + to_at);
    cuda::load(terms, from + from_at);
    for (int i = 0; i < N; ++i) sums[i] += terms[i];
    cuda::store(to + to_at, sums);
  }
};

/// Operation between flat arrays.
template <typename Operation>
struct Flat {
  static constexpr int width = Operation::width;
  Operation operation;

  template <int N>
  __device__ void apply(std::size_t at) const {
    operation.template apply<N>(at, at);
  }
};

/// Same, with at least one strided array.
template <typename Operation>
struct InRuns {
  static constexpr int width = Operation::width;
  Operation operation;
  StridedLayout to, from;

  template <int N>
  __device__ void apply(std::size_t at) const {
    operation.template apply<N>(to.at(at), from.at(at));
  }
};

/// Whether packs stay inside a run and aligned in it.
bool packs_fit(const StridedLayout& runs, std::size_t width) {
  return runs.first % width == 0 && (runs.contiguous() || (runs.run % width == 0 && runs.stride % width == 0));
}

template <typename Operation>
void launch_from_array_to_array(StreamView stream, const Operation& operation, std::size_t n,
                                const StridedLayout& to, const StridedLayout& from, const char* name) {
  const bool packed = cuda::aligned(operation.to) && cuda::aligned(operation.from);
  if (to.contiguous() && from.contiguous() && to.first == 0 && from.first == 0) {
    return cuda::launch_elementwise(stream, Flat<Operation>{operation}, n, packed, name);
  }
  cuda::launch_elementwise(stream, InRuns<Operation>{operation, to, from}, n,
                           packed && packs_fit(to, Operation::width) && packs_fit(from, Operation::width), name);
}

constexpr int warp = 32;
constexpr int squares_threads = 256;

/// One warp per block of the array. As on the host there are 64 partial sums, i % 64 for element i, added in halves;
/// a thread holds two adjacent ones.
template <typename T>
__global__ void __launch_bounds__(squares_threads)
    block_squares(float* __restrict__ sums, std::size_t sums_stride, const T* __restrict__ from,
                  const StridedLayout runs, std::size_t n, std::size_t blocks, std::size_t blocks_of_run,
                  bool paired) {
  constexpr int lanes = 2 * warp;
  constexpr int rounds = static_cast<int>(squares_block_elements) / lanes;
  const int thread = static_cast<int>(threadIdx.x) % warp;
  const std::size_t warps = gridDim.x * std::size_t{squares_threads / warp};
  std::size_t block = blockIdx.x * std::size_t{squares_threads / warp} + threadIdx.x / warp;
  for (; block < blocks; block += warps) {
    const std::size_t run = block / blocks_of_run, in_run = block % blocks_of_run;
    const T* __restrict__ const array = from + run * runs.stride;
    const std::size_t end = std::size_t{n - run * runs.run < runs.run ? n - run * runs.run : runs.run};
    const std::size_t begin = in_run * squares_block_elements + 2 * static_cast<std::size_t>(thread);
    float values[rounds][2];
    if (paired && (in_run + 1) * squares_block_elements <= end) {
#pragma unroll
      for (int round = 0; round < rounds; ++round) {
        cuda::load(values[round], array + begin + round * lanes);
      }
    } else {
#pragma unroll
      for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 2; ++i) {
          const std::size_t at = begin + static_cast<std::size_t>(round * lanes + i);
          values[round][i] = at < end ? cuda::to_float(array[at]) : 0.0f;
        }
      }
    }
    float low = 0, high = 0;
#pragma unroll
    for (int round = 0; round < rounds; ++round) {
      low = __fmaf_rn(values[round][0], values[round][0], low);
      high = __fmaf_rn(values[round][1], values[round][1], high);
    }
#pragma unroll
    for (int half = warp / 2; half != 0; half /= 2) {
      low += __shfl_down_sync(0xffffffffu, low, half);
      high += __shfl_down_sync(0xffffffffu, high, half);
    }
    if (thread == 0) sums[run * sums_stride + in_run] = low + high;
  }
}

constexpr int sum_threads = 1024;

/// One thread block; thread t adds elements t, t + 1024, ... in this order.
__global__ void __launch_bounds__(sum_threads)
    sum_in_order(double* total, const float* __restrict__ from, std::size_t n) {
  __shared__ double parts[sum_threads];
  double part = 0;
#pragma unroll 8
  for (std::size_t i = threadIdx.x; i < n; i += sum_threads) part += from[i];
  parts[threadIdx.x] = part;
  for (unsigned half = sum_threads / 2; half != 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *total = parts[0];
}

}  // namespace

void copy_cuda(StreamView stream, void* to, const void* from, std::size_t bytes) {
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::native(stream)), "cudaMemcpyAsync");
}

void copy_runs_cuda(StreamView stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                    std::size_t run_bytes, std::size_t runs) {
  cuda::check(
      cudaMemcpy2DAsync(to, to_stride, from, from_stride, run_bytes, runs, cudaMemcpyDefault, cuda::native(stream)),
      "cudaMemcpy2DAsync");
}

void fill_zero_cuda(StreamView stream, void* to, std::size_t bytes) {
  cuda::check(cudaMemsetAsync(to, 0, bytes, cuda::native(stream)), "cudaMemsetAsync");
}

void cast_cuda(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n,
               const StridedLayout& to_runs, const StridedLayout& from_runs) {
  if (to_dtype == from_dtype && to_runs.contiguous() && from_runs.contiguous()) {
    auto* const begin = static_cast<std::byte*>(to) + to_runs.first * size_of(to_dtype);
    const auto* const source = static_cast<const std::byte*>(from) + from_runs.first * size_of(to_dtype);
    if (begin != source) copy_cuda(stream, begin, source, n * size_of(to_dtype));
    return;
  }
  cuda::with_type(to_dtype, [&](auto to_type) {
    cuda::with_type(from_dtype, [&](auto from_type) {
      using To = decltype(to_type);
      using From = decltype(from_type);
      launch_from_array_to_array(stream, Cast<To, From>{static_cast<To*>(to), static_cast<const From*>(from)}, n,
                                 to_runs, from_runs, "cast");
    });
  });
}

void scale_cuda(StreamView stream, void* to, DType dtype, float factor, std::size_t n) {
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    cuda::launch_elementwise(stream, Scale<T>{static_cast<T*>(to), factor}, n, cuda::aligned(to), "scale");
  });
}

void add_cuda(StreamView stream, void* to, const void* from, DType dtype, std::size_t n,
              const StridedLayout& to_runs, const StridedLayout& from_runs) {
  const auto add_as = [&](auto type) {
    using T = decltype(type);
    launch_from_array_to_array(stream, Add<T>{static_cast<T*>(to), static_cast<const T*>(from)}, n, to_runs,
                               from_runs, "add");
  };
  if (dtype == DType::f64)
    add_as(double{});
  else
    cuda::with_type(dtype, add_as);
}

void sums_of_squares_cuda(StreamView stream, float* sums, std::size_t sums_stride, const void* from,
                          const StridedLayout& runs, DType dtype, std::size_t n) {
  constexpr std::size_t blocks_per_multiprocessor = 16;
  constexpr std::size_t block_elements = squares_block_elements;
  const std::size_t of_run = ceil_divide(runs.run, block_elements);
  const std::size_t blocks = n / runs.run * of_run + ceil_divide(n % runs.run, block_elements);
  const std::size_t wanted = (blocks + squares_threads / warp - 1) / (squares_threads / warp);
  const cudaStream_t queue = cuda::native(stream);
  const auto most =
      static_cast<std::size_t>(cuda::properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const bool paired = cuda::aligned(from, 2 * sizeof(T)) && (n <= runs.run || runs.stride % 2 == 0);
    cuda::launch("sums_of_squares", queue, {static_cast<unsigned>(std::min(wanted, most)), squares_threads},
                 block_squares<T>, sums, sums_stride, static_cast<const T*>(from), runs, n, blocks, of_run, paired);
  });
}

void sum_cuda(StreamView stream, double* total, const float* from, std::size_t n) {
  cuda::launch("sum", cuda::native(stream), {1, sum_threads}, sum_in_order, total, from, n);
}

}  // namespace ranvier::runtime
