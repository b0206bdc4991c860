#include "models/ops/sliced_attention_cuda.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace ranvier::models::cuda {
namespace {

/// How far the next sample lies in each array of a backward pass.
struct SampleStrides {
  SampleStrides(const AttentionShape& shape, runtime::DType dtype) {
    const auto T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads);
    out = T * H * static_cast<std::size_t>(shape.channels) * size_of(dtype);
    logsumexp = H * T;
  }

  [[nodiscard]] CudnnAttentionArrays from(const CudnnAttentionArrays& x, int sample) const {
    const auto skipped = static_cast<std::size_t>(sample);
    return {.qkv = static_cast<const std::byte*>(x.qkv) + skipped * 3 * out,
            .out = static_cast<std::byte*>(x.out) + skipped * out,
            .logsumexp = x.logsumexp + skipped * logsumexp,
            .d_out = static_cast<const std::byte*>(x.d_out) + skipped * out,
            .d_qkv = static_cast<std::byte*>(x.d_qkv) + skipped * 3 * out,
            .workspace = x.workspace};
  }

  std::size_t out;        ///< bytes; of d_out too, and a third of qkv's and d_qkv's
  std::size_t logsumexp;  ///< floats
};

struct Slices {
  std::unique_ptr<CudnnAttention> attention;
  int samples;  ///< of each
  int count;
};

class Sliced final : public CudnnAttention {
 public:
  Sliced(const AttentionShape& shape, runtime::DType dtype, std::vector<Slices> slices)
      : strides_(shape, dtype), slices_(std::move(slices)) {}

  void run(runtime::StreamView stream, const CudnnAttentionArrays& arrays) override {
    int first = 0;
    for (const Slices& slices : slices_) {
      for (int i = 0; i < slices.count; ++i, first += slices.samples)
        slices.attention->run(stream, strides_.from(arrays, first));
    }
  }

 private:
  SampleStrides strides_;
  std::vector<Slices> slices_;
};

}  // namespace

CudnnPlan plan_sliced_attention(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                                AttentionPass pass, std::size_t workspace_bytes) {
  const int most =
      pass == AttentionPass::forward ? shape.samples : library_attention_samples(shape, dtype, workspace_bytes);
  if (most == shape.samples) return plan_cudnn_attention(stream, shape, dtype, pass, workspace_bytes);
  if (most == 0) return {.attention = nullptr, .obstacle = "one sample needs more workspace than is planned"};
  if (SampleStrides(shape, dtype).logsumexp * sizeof(float) % cudnn_array_alignment != 0)
    return {.attention = nullptr, .obstacle = "a slice of the samples is not aligned"};
  const int count = (shape.samples + most - 1) / most, larger = shape.samples % count;
  std::vector<Slices> all;
  for (const auto& [samples, times] :
       {std::pair{shape.samples / count + 1, larger}, {shape.samples / count, count - larger}}) {
    if (times == 0) continue;
    AttentionShape slice = shape;
    slice.samples = samples;
    CudnnPlan plan = plan_cudnn_attention(stream, slice, dtype, pass, workspace_bytes);
    if (plan.attention == nullptr) return plan;
    all.push_back({std::move(plan.attention), samples, times});
  }
  return {.attention = std::make_unique<Sliced>(shape, dtype, std::move(all)), .obstacle = {}};
}

}  // namespace ranvier::models::cuda
