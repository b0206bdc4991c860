#include "models/ops/attention.hpp"

#include "models/ops/attention_arguments.cuh"
#include "models/ops/library_attention_cuda.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"

#include <cmath>

namespace ranvier::models {
namespace {

using cuda::AttentionArguments;
using runtime::DType;

constexpr int threads = 256;

/// A warp computes a row of a head.
template <typename T>
__global__ void __launch_bounds__(threads) delta_kernel(AttentionArguments arrays, const T* out) {
  const std::size_t rows = static_cast<std::size_t>(arrays.B) * arrays.T * arrays.H;
  const std::size_t row = std::size_t{blockIdx.x} * (threads / 32) + threadIdx.x / 32;  // row of [B, T, H]
  if (row >= rows) return;
  const std::size_t h = row % arrays.H, t = row / arrays.H % arrays.T, b = row / arrays.H / arrays.T;
  const T* const d_out = static_cast<const T*>(arrays.d_out);
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % 32; d < arrays.D; d += 32)
    sum += cuda::to_float(d_out[row * arrays.D + d]) * cuda::to_float(out[row * arrays.D + d]);
  sum = cuda::warp_sum(sum);
  if (threadIdx.x % 32 == 0) arrays.delta[(b * arrays.H + h) * arrays.T + t] = sum;
}

AttentionArguments arguments_of(const AttentionShape& shape, DType dtype, const AttentionArrays& arrays) {
  expect(shape.channels <= cuda::plain_attention_channels,
         "attention with heads of {} channels: a GPU's kernels take {}", shape.channels,
         cuda::plain_attention_channels);
  AttentionArguments result;
  result.B = shape.samples;
  result.T = shape.positions;
  result.H = shape.heads;
  result.K = shape.stored_key_heads();
  result.D = shape.channels;
  result.causal = shape.causal;
  result.window = shape.window;
  result.bounds = arrays.bounds;
  result.wide = static_cast<std::size_t>(shape.channels) * size_of(dtype) % 16 == 0 && cuda::aligned(arrays.qkv) &&
                cuda::aligned(arrays.out) && cuda::aligned(arrays.d_out) && cuda::aligned(arrays.d_qkv);
  result.dropout = cuda::DropoutRule(arrays.dropout);
  result.scale = 1.0f / std::sqrt(static_cast<float>(shape.channels));
  result.qkv = arrays.qkv;
  result.out = arrays.out;
  result.logsumexp = arrays.logsumexp;
  result.d_out = arrays.d_out;
  result.d_qkv = arrays.d_qkv;
  result.delta = reinterpret_cast<float*>(arrays.workspace);
  return result;
}

bool on_tensor_cores(const AttentionShape& shape, DType dtype) {
  return dtype != DType::f32 && shape.channels <= cuda::tensor_attention_channels;
}

}  // namespace

std::size_t attention_cuda_workspace_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.heads) *
         static_cast<std::size_t>(shape.positions) * sizeof(float);
}

void attention_forward_cuda(runtime::StreamView stream, const AttentionShape& shape, DType dtype,
                            const AttentionArrays& arrays) {
  if (shape.samples == 0) return;
  const auto own = [&] {
    const auto run = on_tensor_cores(shape, dtype) ? cuda::tensor_attention_forward : cuda::plain_attention_forward;
    run(runtime::cuda::native(stream), dtype, arguments_of(shape, dtype, arrays));
  };
  if (!cuda::library_attention(stream, AttentionPass::forward, shape, dtype, arrays, own)) own();
}

void attention_backward_cuda(runtime::StreamView stream, const AttentionShape& shape, DType dtype,
                             const AttentionArrays& arrays) {
  if (shape.samples == 0) return;
  const auto own = [&] {
    const cudaStream_t queue = runtime::cuda::native(stream);
    const AttentionArguments arguments = arguments_of(shape, dtype, arrays);
    const std::size_t rows = attention_cuda_workspace_bytes(shape) / sizeof(float);
    cuda::with_type(dtype, [&]<typename T>(T) {
      cuda::launch("attention_backward's means", stream, {cuda::blocks_of(rows, threads / 32), threads},
                   delta_kernel<T>, arguments, arrays.out);
    });
    const auto run =
        on_tensor_cores(shape, dtype) ? cuda::tensor_attention_backward : cuda::plain_attention_backward;
    run(queue, dtype, arguments);
  };
  const AttentionPass pass = shape.fast_backward ? AttentionPass::fast_backward : AttentionPass::backward;
  if (!cuda::library_attention(stream, pass, shape, dtype, arrays, own)) own();
}

}  // namespace ranvier::models
