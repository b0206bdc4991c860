// Forward: a row of blockDim.x threads writes one position. Backward: positions are sorted by token by counting how
// many come before each (microseconds: 268 million comparisons for 16384 positions). Then the first position of each
// token sums the rows of all its positions.
#include "models/ops/embedding.hpp"

#include "models/ops/bad_token.hpp"
#include "models/ops/bad_token_cuda.hpp"
#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

constexpr int threads = 256;
constexpr int order_tile = 1024;  // tokens in shared memory at a time

/// Table row of a token; a bad token is reported and uses row 0.
__device__ std::size_t row_of(std::int32_t token, std::size_t index, std::size_t vocab_size,
                              volatile unsigned long long* bad_place) {
  if (token >= 0 && static_cast<std::size_t>(token) < vocab_size) return static_cast<std::size_t>(token);
  *bad_place = cuda::bad_token(index, token);
  return 0;
}

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    forward_kernel(EmbeddingShape shape, EmbeddingForward arrays, volatile unsigned long long* bad_place) {
  const std::size_t packs = shape.channels / width;
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  const std::size_t i = at / packs, c = at % packs * width;
  if (i >= shape.samples * shape.positions) return;
  T* const to = static_cast<T*>(arrays.out) + i * shape.channels + c;
  const T* word = to;
  if (arrays.tokens_table != nullptr) {
    const std::size_t row = row_of(arrays.tokens[i], i, shape.vocab_size, bad_place);
    if (row < arrays.first_row || row - arrays.first_row >= arrays.token_rows) return;
    word = static_cast<const T*>(arrays.tokens_table) + (row - arrays.first_row) * shape.channels + c;
  }
  if (arrays.positions_table == nullptr) {
    using Words = cuda::Pack<T, width>;
    *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(word);
    return;
  }
  const std::size_t position =
      arrays.positions != nullptr ? static_cast<std::size_t>(arrays.positions[i]) : i % shape.positions;
  float value[width], place[width];
  cuda::load(value, word);
  cuda::load(place, static_cast<const T*>(arrays.positions_table) + position * shape.channels + c);
#pragma unroll
  for (int e = 0; e < width; ++e) value[e] += place[e];
  cuda::store(to, value);
}

/// order[number of positions that come before i] = i; sorted by token, then by position.
__global__ void __launch_bounds__(threads)
    order_kernel(std::int32_t* order, const std::int32_t* tokens, int count) {
  __shared__ __align__(16) std::int32_t tile[order_tile];
  const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  const std::int32_t token = i < count ? tokens[i] : 0;
  int before = 0;
  for (int first = 0; first < count; first += order_tile) {
    for (int at = static_cast<int>(threadIdx.x); at < order_tile && first + at < count; at += threads)
      tile[at] = tokens[first + at];
    __syncthreads();
    const int in_tile = min(order_tile, count - first);
    const int earlier = min(max(i - first, 0), in_tile);  // earlier positions in this tile
    int at = 0;
    for (; at < earlier; ++at) before += tile[at] <= token ? 1 : 0;
    for (; at < in_tile; ++at) before += tile[at] < token ? 1 : 0;
    __syncthreads();
  }
  if (i < count) order[before] = i;
}

/// to[width] (+)= sum.
template <int width, typename G>
__device__ void put(G* to, float (&total)[width], bool accumulate) {
  if (accumulate) {
    float before[width];
    cuda::load(before, to);
#pragma unroll
    for (int e = 0; e < width; ++e) total[e] = before[e] + total[e];
  }
  cuda::store(to, total);
}

/// Block (x, y): the token of position order[x], if it is the token's first position, and channels starting at y.
template <int width, typename T, typename G>
__global__ void __launch_bounds__(threads)
    tokens_gradient_kernel(EmbeddingShape shape, EmbeddingBackward arrays, int count) {
  const int first = static_cast<int>(blockIdx.x);
  const std::int32_t token = arrays.tokens[arrays.order[first]];
  if (token < 0 || (first > 0 && arrays.tokens[arrays.order[first - 1]] == token)) return;
  const auto row = static_cast<std::size_t>(token);
  if (row < arrays.first_row || row - arrays.first_row >= arrays.token_rows) return;
  const std::size_t C = shape.channels;
  const std::size_t c = (std::size_t{blockIdx.y} * blockDim.x + threadIdx.x) * width;
  if (c >= C) return;
  const T* const d_out = static_cast<const T*>(arrays.d_out);
  float total[width] = {};
  constexpr int together = 8;  // rows whose loads are independent
  for (int next = first; next < count; next += together) {
    std::int32_t rows[together];  // the token's rows come first
#pragma unroll
    for (int k = 0; k < together; ++k) rows[k] = next + k < count ? arrays.order[next + k] : -1;
    bool is_there[together];
#pragma unroll
    for (int k = 0; k < together; ++k) is_there[k] = rows[k] >= 0 && arrays.tokens[rows[k]] == token;
    float values[together][width];
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (is_there[k]) cuda::load(values[k], d_out + static_cast<std::size_t>(rows[k]) * C + c);
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (is_there[k]) {
#pragma unroll
        for (int e = 0; e < width; ++e) total[e] += values[k][e];
      }
    if (!is_there[together - 1]) break;
  }
  put(static_cast<G*>(arrays.tokens_gradient) + (row - arrays.first_row) * C + c, total, arrays.accumulate);
}

template <int width, typename T, typename G>
__global__ void __launch_bounds__(threads)
    positions_gradient_kernel(EmbeddingShape shape, EmbeddingBackward arrays) {
  const std::size_t packs = shape.channels / width;
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  const std::size_t t = at / packs, c = at % packs * width;
  if (t >= shape.positions) return;
  const T* const d_out = static_cast<const T*>(arrays.d_out);
  float total[width] = {};
#pragma unroll 4
  for (std::size_t b = 0; b < shape.samples; ++b) {
    float values[width];
    cuda::load(values, d_out + (b * shape.positions + t) * shape.channels + c);
#pragma unroll
    for (int e = 0; e < width; ++e) total[e] += values[e];
  }
  put(static_cast<G*>(arrays.positions_gradient) + t * shape.channels + c, total, arrays.accumulate);
}

}  // namespace

void embedding_forward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                            const EmbeddingForward& arrays) {
  const std::size_t rows = shape.samples * shape.positions;
  if (rows == 0 || shape.channels == 0) return;
  auto* const bad_place = cuda::bad_token_place(cuda::TokenUse::input);
  cuda::with_rows(dtype, shape.channels, {arrays.out, arrays.tokens_table, arrays.positions_table},
                  [&]<typename T>(T, auto width) {
                    cuda::launch_each<threads>("embedding_forward", stream, rows * shape.channels / width(),
                                               forward_kernel<width(), T>, shape, arrays, bad_place);
                  });
  if (arrays.tokens_table == nullptr) return;
  cuda::expect_no_bad_token(stream, cuda::TokenUse::input, [shape](std::int32_t token, std::size_t index) {
    fail_bad_token(token, index, shape);
  });
}

void embedding_backward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                             const EmbeddingBackward& arrays) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  const std::size_t positions = shape.samples * shape.positions, element = size_of(arrays.gradient_dtype);
  const auto count = static_cast<int>(positions);
  if (!arrays.accumulate && arrays.tokens_gradient != nullptr) {
    runtime::cuda::check(
        cudaMemsetAsync(arrays.tokens_gradient, 0, arrays.token_rows * shape.channels * element, queue),
        "cudaMemsetAsync");
  }
  if (!arrays.accumulate && arrays.positions_gradient != nullptr) {
    runtime::cuda::check(
        cudaMemsetAsync(
            static_cast<std::byte*>(arrays.positions_gradient) + shape.positions * shape.channels * element, 0,
            (arrays.position_rows - shape.positions) * shape.channels * element, queue),
        "cudaMemsetAsync");
  }
  if (count == 0 || shape.channels == 0) return;
  if (!arrays.in_order) {
    cuda::launch_each<threads>("embedding_backward's order", stream, positions, order_kernel, arrays.order,
                               arrays.tokens, count);
  }
  cuda::with_rows(dtype, shape.channels, {arrays.d_out, arrays.tokens_gradient, arrays.positions_gradient},
                  [&]<typename T>(T, auto width) {
                    cuda::with_type(arrays.gradient_dtype, [&]<typename G>(G) {
                      const std::size_t packs = shape.channels / static_cast<std::size_t>(width());
                      if (arrays.tokens_gradient != nullptr) {
                        const auto across =
                            static_cast<unsigned>(std::min<std::size_t>(128, cuda::ceil_divide(packs, 32) * 32));
                        const dim3 blocks(cuda::blocks_of(positions, 1), cuda::blocks_down(packs, across));
                        cuda::launch("embedding_backward of tokens", stream, {blocks, across},
                                     tokens_gradient_kernel<width(), T, G>, shape, arrays, count);
                      }
                      if (arrays.positions_gradient != nullptr) {
                        cuda::launch_each<threads>("embedding_backward of positions", stream,
                                                   shape.positions * shape.channels / width(),
                                                   positions_gradient_kernel<width(), T, G>, shape, arrays);
                      }
                    });
                  });
}

}  // namespace ranvier::models
