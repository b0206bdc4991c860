#include "models/ops/attention.hpp"

#include "models/ops/attention_cpu.hpp"
#include "models/ops/dispatch.hpp"
#include "models/ops/library_pieces.hpp"
#include "models/ops/visible_keys.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

void check(runtime::DType dtype, const AttentionShape& shape) {
  expect_kernel(dtype, "attention");
  expect(shape.samples >= 0 && shape.positions >= 1 && shape.heads >= 1 && shape.channels >= 1,
         "attention over {} samples, {} positions, {} heads of {} channels", shape.samples, shape.positions,
         shape.heads, shape.channels);
  expect(shape.key_heads >= 0 && shape.heads % shape.stored_key_heads() == 0,
         "attention of {} heads of queries over {} of keys, which do not divide them", shape.heads,
         shape.key_heads);
  expect(shape.window >= 0 && (shape.window == 0 || shape.causal),
         "attention with a window of {} positions{}: windows end at a position that sees nothing later",
         shape.window, shape.causal ? "" : ", not causal");
}

/// Cost of reading and writing `wide` arrays [B, T, (H + 2K)·D], `narrow` arrays [B, T, C] and logsumexp. Two
/// multiplications per pair forward; five backward, which recomputes the scores.
runtime::WorkCost cost_of(const AttentionShape& shape, runtime::DType dtype, std::size_t wide, std::size_t narrow,
                          int products) {
  const auto B = static_cast<std::size_t>(shape.samples), T = static_cast<std::size_t>(shape.positions);
  const auto H = static_cast<std::size_t>(shape.heads), C = H * static_cast<std::size_t>(shape.channels);
  runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::attention, dtype,
                  B * T * (bytes_of(wide * shape.row_channels() + narrow * C, dtype) + H * sizeof(float)));
  cost.flops = 2.0 * products * static_cast<double>(B * C) * pairs_of(shape);
  return cost;
}

/// Workspace of the library's backward pass for one key head of one sample, with the query heads that read it. The fast
/// pass needs two copies on architecture 80, and one on 90.
std::size_t library_bytes_of_key_head(const AttentionShape& shape, runtime::DType dtype) {
  constexpr std::size_t tile = 128;
  const auto sharing = static_cast<std::size_t>(shape.heads / shape.stored_key_heads());
  const auto D = static_cast<std::size_t>(shape.channels);
  const std::size_t padded = runtime::round_up(static_cast<std::size_t>(shape.positions), tile);
  std::size_t of_row = sizeof(float) + (shape.fast_backward ? 2 * D * sizeof(float) : padded * size_of(dtype));
  if (sharing > 1) of_row += 2 * D * size_of(dtype);
  return sharing * padded * of_row;
}

std::size_t library_bytes_of_slice(const AttentionShape& shape, runtime::DType dtype, AttentionSlice slice) {
  return static_cast<std::size_t>(slice.samples) * static_cast<std::size_t>(slice.key_heads) *
         library_bytes_of_key_head(shape, dtype);
}

/// Whether library_attention_suits() holds for some number of samples.
bool library_suits_some(const AttentionShape& shape, runtime::DType dtype) {
  return shape.kernels != AttentionKernels::own && dtype != runtime::DType::f32 && shape.channels <= 128 &&
         shape.channels % 8 == 0;
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads) {
  const std::size_t of_cpu = attention_cpu_workspace_bytes(shape, dtype, threads);
  if constexpr (runtime::with_cuda) {
    const std::size_t of_library =
        library_suits_some(shape, dtype) ? library_attention_workspace_bytes(shape, dtype) : 0;
    return std::max({of_cpu, attention_cuda_workspace_bytes(shape), of_library});
  }
  return of_cpu;
}

bool library_attention_suits(const AttentionShape& shape, runtime::DType dtype) {
  const auto rows = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  return library_suits_some(shape, dtype) && rows * shape.row_channels() <= max_library_elements;
}

std::size_t library_attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype) {
  constexpr std::size_t most = std::size_t{1} << 30, some = 4096;
  return some + library_bytes_of_slice(shape, dtype, library_attention_slice(shape, dtype, most));
}

AttentionSlice library_attention_slice(const AttentionShape& shape, runtime::DType dtype,
                                       std::size_t workspace_bytes) {
  const auto key_heads = static_cast<std::size_t>(shape.stored_key_heads());
  const std::size_t fit = workspace_bytes / library_bytes_of_key_head(shape, dtype);
  if (fit == 0) return {};
  const auto whole_samples = std::min(fit / key_heads, static_cast<std::size_t>(shape.samples));
  if (fit >= key_heads) return {static_cast<int>(whole_samples), shape.stored_key_heads()};
  const std::size_t slices = runtime::ceil_divide(key_heads, fit);
  return {std::min(shape.samples, 1), static_cast<int>(runtime::ceil_divide(key_heads, slices))};
}

void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                       const AttentionArrays& arrays) {
  check(dtype, shape);
  if (ran_on_gpu<attention_forward_cuda>(stream, shape, dtype, arrays)) return;
  stream.launch(cost_of(shape, dtype, 1, 1, 2),
                [=](runtime::ComputePool& pool) { attention_forward_cpu(pool, shape, dtype, arrays); });
}

void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                        const AttentionArrays& arrays) {
  check(dtype, shape);
  if (ran_on_gpu<attention_backward_cuda>(stream, shape, dtype, arrays)) return;
  stream.launch(cost_of(shape, dtype, 2, 2, 5),
                [=](runtime::ComputePool& pool) { attention_backward_cpu(pool, shape, dtype, arrays); });
}

}  // namespace ranvier::models
