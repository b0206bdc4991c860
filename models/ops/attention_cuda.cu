#include "models/ops/attention.hpp"

#include "models/ops/attention_arrays.cuh"
#include "models/ops/cuda_vector.cuh"
#include "models/ops/library_attention_cuda.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

#include <cmath>

namespace ranvier::models {
namespace {

using cuda::AttentionArrays;
using runtime::DType;

constexpr int threads = 256;

/// A warp computes a row of a head.
template <typename T>
__global__ void __launch_bounds__(threads) delta_kernel(AttentionArrays arrays, const T* out) {
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

AttentionArrays arrays_of(const AttentionShape& shape, DType dtype, const Dropout& dropout,
                          const AttentionBounds& bounds) {
  expect(shape.channels <= cuda::plain_attention_channels,
         "attention with heads of {} channels: a GPU's kernels take {}", shape.channels,
         cuda::plain_attention_channels);
  AttentionArrays arrays;
  arrays.B = shape.samples;
  arrays.T = shape.positions;
  arrays.H = shape.heads;
  arrays.K = shape.stored_key_heads();
  arrays.D = shape.channels;
  arrays.causal = shape.causal;
  arrays.window = shape.window;
  arrays.bounds = bounds;
  arrays.wide = static_cast<std::size_t>(shape.channels) * size_of(dtype) % 16 == 0;
  arrays.dropout = cuda::DropoutRule(dropout);
  arrays.scale = 1.0f / std::sqrt(static_cast<float>(shape.channels));
  return arrays;
}

bool on_tensor_cores(const AttentionShape& shape, DType dtype) {
  return dtype != DType::f32 && shape.channels <= cuda::tensor_attention_channels;
}

}  // namespace

std::size_t attention_cuda_workspace_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.heads) *
         static_cast<std::size_t>(shape.positions) * sizeof(float);
}

void attention_forward_cuda(runtime::StreamView stream, const AttentionShape& shape, DType dtype, void* out,
                            float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace,
                            const AttentionBounds& bounds) {
  if (shape.samples == 0) return;
  const auto own = [&] {
    AttentionArrays arrays = arrays_of(shape, dtype, dropout, bounds);
    arrays.qkv = qkv;
    arrays.out = out;
    arrays.logsumexp = logsumexp;
    arrays.wide = arrays.wide && cuda::aligned(qkv) && cuda::aligned(out);
    const auto run = on_tensor_cores(shape, dtype) ? cuda::tensor_attention_forward : cuda::plain_attention_forward;
    run(runtime::cuda::native(stream), dtype, arrays);
  };
  const cuda::LibraryAttentionArrays arrays{.qkv = qkv, .out = out, .logsumexp = logsumexp, .workspace = workspace};
  if (bounds.any() || !cuda::library_attention(stream, AttentionPass::forward, shape, dtype, dropout, arrays, own))
    own();
}

void attention_backward_cuda(runtime::StreamView stream, const AttentionShape& shape, DType dtype, void* d_qkv,
                             const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                             const Dropout& dropout, std::byte* workspace, const AttentionBounds& bounds) {
  if (shape.samples == 0) return;
  float* const given_logsumexp = const_cast<float*>(logsumexp);  // backward kernels read it
  const auto own = [&] {
    const cudaStream_t queue = runtime::cuda::native(stream);
    AttentionArrays arrays = arrays_of(shape, dtype, dropout, bounds);
    arrays.qkv = qkv;
    arrays.logsumexp = given_logsumexp;
    arrays.d_out = d_out;
    arrays.d_qkv = d_qkv;
    arrays.delta = reinterpret_cast<float*>(workspace);
    arrays.wide = arrays.wide && cuda::aligned(qkv) && cuda::aligned(d_out) && cuda::aligned(d_qkv);
    const std::size_t rows = attention_cuda_workspace_bytes(shape) / sizeof(float);
    cuda::with_type(dtype, [&](auto type) {
      using T = decltype(type);
      runtime::cuda::launch("attention_backward's means", queue, {cuda::blocks_of(rows, threads / 32), threads},
                            delta_kernel<T>, arrays, static_cast<const T*>(out));
    });
    const auto run =
        on_tensor_cores(shape, dtype) ? cuda::tensor_attention_backward : cuda::plain_attention_backward;
    run(queue, dtype, arrays);
  };
  const cuda::LibraryAttentionArrays arrays{.qkv = qkv,
                                            .out = const_cast<void*>(out),
                                            .logsumexp = given_logsumexp,
                                            .d_out = d_out,
                                            .d_qkv = d_qkv,
                                            .workspace = workspace};
  const AttentionPass pass = shape.fast_backward ? AttentionPass::fast_backward : AttentionPass::backward;
  if (bounds.any() || !cuda::library_attention(stream, pass, shape, dtype, dropout, arrays, own)) own();
}

}  // namespace ranvier::models
