#include "runtime/kernels/elementwise_cuda.hpp"

#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/packs_cuda.cuh"

#include <type_traits>

namespace ranvier::runtime {
namespace {

using cuda::as_float;

template <typename T>
constexpr int per_16_bytes = 16 / static_cast<int>(sizeof(T));

template <typename To, typename From>
struct Cast {
  // Of the wider type: then the accesses to both arrays are next to each other across a warp.
  static constexpr int width = 16 / static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  To* to;
  const From* from;

  template <int N>
  __device__ void apply(std::size_t at) const {
    float values[N];
    cuda::load_floats<N>(values, from + at);
    cuda::store_floats<N>(to + at, values);
  }
};

template <typename T>
struct Scale {
  static constexpr int width = per_16_bytes<T>;
  T* to;
  float factor;

  template <int N>
  __device__ void apply(std::size_t at) const {
    float values[N];
    cuda::load_floats<N>(values, to + at);
    for (int i = 0; i < N; ++i) values[i] *= factor;
    cuda::store_floats<N>(to + at, values);
  }
};

template <typename T>
struct Add {
  static constexpr int width = per_16_bytes<T>;
  T* to;
  const T* from;

  template <int N>
  __device__ void apply(std::size_t at) const {
    if constexpr (std::is_same_v<T, double>) {
      double sums[N], terms[N];
      cuda::load<N>(sums, to + at);
      cuda::load<N>(terms, from + at);
      for (int i = 0; i < N; ++i) sums[i] += terms[i];
      cuda::store<N>(to + at, sums);
    } else {
      float sums[N], terms[N];
      cuda::load_floats<N>(sums, to + at);
      cuda::load_floats<N>(terms, from + at);
      for (int i = 0; i < N; ++i) sums[i] += terms[i];
      cuda::store_floats<N>(to + at, sums);
    }
  }
};

constexpr int warp = 32;
constexpr int squares_threads = 256;

/// A warp per block of the array. As on the host there are 64 partial sums, element i's is i % 64, and they are added
/// up half on half; a thread holds two next to each other.
template <typename T>
__global__ void __launch_bounds__(squares_threads)
    block_squares(float* __restrict__ sums, const T* __restrict__ from, std::size_t n, std::size_t blocks, bool paired) {
  constexpr int lanes = 2 * warp;
  constexpr int rounds = static_cast<int>(squares_block_elements) / lanes;
  const int thread = static_cast<int>(threadIdx.x) % warp;
  const std::size_t warps = gridDim.x * std::size_t{squares_threads / warp};
  std::size_t block = blockIdx.x * std::size_t{squares_threads / warp} + threadIdx.x / warp;
  for (; block < blocks; block += warps) {
    const std::size_t begin = block * squares_block_elements + 2 * static_cast<std::size_t>(thread);
    float values[rounds][2];
    if (paired && (block + 1) * squares_block_elements <= n) {
#pragma unroll
      for (int round = 0; round < rounds; ++round) {
        using Pair = std::conditional_t<sizeof(T) == 4, uint2, unsigned>;
        const Pair raw = *reinterpret_cast<const Pair*>(from + begin + round * lanes);
        T pair[2];
        memcpy(pair, &raw, sizeof(pair));
        values[round][0] = as_float(pair[0]);
        values[round][1] = as_float(pair[1]);
      }
    } else {
#pragma unroll
      for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 2; ++i) {
          const std::size_t at = begin + static_cast<std::size_t>(round * lanes + i);
          values[round][i] = at < n ? as_float(from[at]) : 0.0f;
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
    if (thread == 0) sums[block] = low + high;
  }
}

constexpr int sum_threads = 1024;

/// One block of threads; thread t adds up elements t, t + 1024, ... in this order.
__global__ void __launch_bounds__(sum_threads) sum_in_order(double* total, const float* __restrict__ from, std::size_t n) {
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

void fill_zero_cuda(StreamView stream, void* to, std::size_t bytes) {
  cuda::check(cudaMemsetAsync(to, 0, bytes, cuda::native(stream)), "cudaMemsetAsync");
}

void cast_cuda(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n) {
  if (to_dtype == from_dtype) {
    if (to != from) copy_cuda(stream, to, from, n * size_of(to_dtype));
    return;
  }
  with_float_type(to_dtype, [&]<typename To>(To) {
    with_float_type(from_dtype, [&]<typename From>(From) {
      cuda::launch_elementwise(stream, Cast<To, From>{static_cast<To*>(to), static_cast<const From*>(from)}, n,
                               cuda::is_aligned(to) && cuda::is_aligned(from), "cast");
    });
  });
}

void scale_cuda(StreamView stream, void* to, DType dtype, float factor, std::size_t n) {
  with_float_type(dtype, [&]<typename T>(T) {
    cuda::launch_elementwise(stream, Scale<T>{static_cast<T*>(to), factor}, n, cuda::is_aligned(to), "scale");
  });
}

void add_cuda(StreamView stream, void* to, const void* from, DType dtype, std::size_t n) {
  const auto add_as = [&]<typename T>(T) {
    cuda::launch_elementwise(stream, Add<T>{static_cast<T*>(to), static_cast<const T*>(from)}, n,
                             cuda::is_aligned(to) && cuda::is_aligned(from), "add");
  };
  if (dtype == DType::f64)
    add_as(double{});
  else
    with_float_type(dtype, add_as);
}

void sums_of_squares_cuda(StreamView stream, float* sums, const void* from, DType dtype, std::size_t n) {
  constexpr std::size_t blocks_per_multiprocessor = 16;
  const std::size_t blocks = (n + squares_block_elements - 1) / squares_block_elements;
  const std::size_t wanted = (blocks + squares_threads / warp - 1) / (squares_threads / warp);
  const cudaStream_t queue = cuda::native(stream);
  const auto most =
      static_cast<std::size_t>(cuda::properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  with_float_type(dtype, [&]<typename T>(T) {
    block_squares<<<static_cast<unsigned>(std::min(wanted, most)), squares_threads, 0, queue>>>(
        sums, static_cast<const T*>(from), n, blocks, reinterpret_cast<std::uintptr_t>(from) % (2 * sizeof(T)) == 0);
  });
  cuda::check_launch("sums_of_squares");
}

void sum_cuda(StreamView stream, double* total, const float* from, std::size_t n) {
  sum_in_order<<<1, sum_threads, 0, cuda::native(stream)>>>(total, from, n);
  cuda::check_launch("sum");
}

}  // namespace ranvier::runtime
