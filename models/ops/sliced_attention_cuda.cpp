#include "models/ops/sliced_attention_cuda.hpp"

#include "runtime/base/arithmetic.hpp"

namespace ranvier::models::cuda {
namespace {

const void* moved(const void* array, std::size_t bytes) {
  return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + bytes;
}
void* moved(void* array, std::size_t bytes) {
  return const_cast<void*>(moved(static_cast<const void*>(array), bytes));
}

/// Arrays starting at a sample and key head.
CudnnAttentionArrays arrays_of(const LibraryAttentionArrays& x, const AttentionShape& shape, runtime::DType dtype,
                               const SlicedAttention::Step& first) {
  const auto T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads),
             K = static_cast<std::size_t>(shape.stored_key_heads());
  const auto sample = static_cast<std::size_t>(first.sample), key_head = static_cast<std::size_t>(first.key_head);
  const std::size_t of_head = static_cast<std::size_t>(shape.channels) * size_of(dtype);
  const std::size_t head = key_head * (H / K), row = sample * T;
  const std::size_t q = (row * (H + 2 * K) + head) * of_head, k = (row * (H + 2 * K) + H + key_head) * of_head,
                    v = k + K * of_head, out = (row * H + head) * of_head;
  return {.q = moved(x.qkv, q),
          .k = moved(x.qkv, k),
          .v = moved(x.qkv, v),
          .out = moved(x.out, out),
          .logsumexp = x.logsumexp + (sample * H + head) * T,
          .d_out = moved(x.d_out, out),
          .d_q = moved(x.d_qkv, q),
          .d_k = moved(x.d_qkv, k),
          .d_v = moved(x.d_qkv, v),
          .workspace = x.workspace};
}

}  // namespace

void SlicedAttention::run(runtime::StreamView stream, const LibraryAttentionArrays& arrays) const {
  for (const Step& step : steps_) plans_[step.plan]->run(stream, arrays_of(arrays, shape_, dtype_, step));
}

SlicedPlan plan_sliced_attention(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                                 AttentionPass pass, std::size_t workspace_bytes) {
  const int key_heads = shape.stored_key_heads(), sharing = shape.heads / key_heads;
  const AttentionSlice most = pass == AttentionPass::forward
                                  ? AttentionSlice{shape.samples, key_heads}
                                  : library_attention_slice(shape, dtype, workspace_bytes);
  if (most.samples == 0 || most.key_heads == 0)
    return {.attention = nullptr, .obstacle = "one head of keys needs more workspace than is planned"};
  const bool of_heads = most.key_heads < key_heads;
  const int all = of_heads ? key_heads : shape.samples, largest = of_heads ? most.key_heads : most.samples;
  const int count = runtime::ceil_divide(all, largest);
  const std::size_t rows_of_one =
      static_cast<std::size_t>(of_heads ? sharing : shape.heads) * static_cast<std::size_t>(shape.positions);
  if (count > 1 && rows_of_one * sizeof(float) % cudnn_array_alignment != 0)
    return {.attention = nullptr, .obstacle = "a slice of samples or heads is not aligned"};
  std::vector<std::unique_ptr<CudnnAttention>> plans;
  std::vector<SlicedAttention::Step> steps;
  for (int i = 0, first = 0, planned = 0; i < count; ++i) {
    const int size = all / count + (i < all % count ? 1 : 0);
    if (size != planned) {
      AttentionShape slice = shape;
      slice.samples = of_heads ? 1 : size;
      slice.key_heads = of_heads ? size : key_heads;
      slice.heads = slice.key_heads * sharing;
      CudnnPlan plan = plan_cudnn_attention(stream, slice, {shape.heads, key_heads}, dtype, pass, workspace_bytes);
      if (plan.attention == nullptr) return {.attention = nullptr, .obstacle = std::move(plan.obstacle)};
      plans.push_back(std::move(plan.attention));
      planned = size;
    }
    if (of_heads) {
      for (int sample = 0; sample < shape.samples; ++sample) steps.push_back({plans.size() - 1, sample, first});
    } else {
      steps.push_back({plans.size() - 1, first, 0});
    }
    first += size;
  }
  return {.attention = std::make_unique<SlicedAttention>(shape, dtype, std::move(plans), std::move(steps)),
          .obstacle = {}};
}

}  // namespace ranvier::models::cuda
