// What a transformer block is and computes beside its four products, which are done whole (gpt_block.cpp) or in tiles
// (gpt_tiled_block.cpp): norms, attention, dropout, and where their arrays lie. Everything is queued on the call's
// stream; one instance serves any thread, as it keeps nothing between calls.
#pragma once

#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/dropout.hpp"

#include <cstddef>

namespace ranvier::models {

/// Where a call's arrays lie, to which the way of doing products adds its workspace. Letters: N = B·T rows, C
/// channels, H heads.
///
/// Kept from forward, besides the input: 9 C per row. The norms' outputs and GELU's are computed again in the
/// backward pass, which costs less than a hundredth of the products beside it.
struct GptBlockArrays {
  struct Norm {
    std::size_t mean, rstd;  ///< saved [N] float
    std::size_t sums;        ///< deferred [2, C] float: gradients of weight and bias
    std::size_t parameters;  ///< deferred [2, C]: weight and bias, for what is computed after they were given up
  };

  GptBlockArrays(const GptOptions& options, const MicrobatchShape& shape);

  MemoryLayout saved, deferred, workspace;
  Norm norm_1, norm_2;
  std::size_t logsumexp;  ///< [B, H, T]
  std::size_t qkv;        ///< [N, 3C]
  std::size_t attention;  ///< [N, C]
  std::size_t middle;     ///< [N, C]: the residual stream between attention and MLP
  std::size_t fc;         ///< [N, 4C], tile by tile: before GELU; backward_input replaces it by GELU's output
  std::size_t d_qkv, d_attn_proj, d_fc, d_mlp_proj;  ///< gradients of the four products' results
  std::size_t narrow;                                ///< workspace [N, C]: a norm's output, or a gradient
  std::size_t scratch;                               ///< workspace: whatever a kernel needs
};

class GptBlockLayer : public Layer {
 public:
  double flops_per_sample(int positions) const override { return gpt_block_flops(options_, positions); }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  bool repeats(bool training) const noexcept override { return !training || options_.dropout == 0; }

 protected:
  using Norm = GptBlockArrays::Norm;

  GptBlockLayer(const GptOptions& options, int index);

  /// narrow = norm of `x`, or of the sum of `x` and `branch`, which goes to `sum`.
  void norm_forward(const LayerCall& call, const GptBlockArrays& at, const Norm& norm, const std::byte* x,
                    const std::byte* weight, const std::byte* bias, const std::byte* branch = nullptr,
                    std::byte* sum = nullptr) const;
  void keep_norm(const LayerCall& call, const Norm& norm, const std::byte* weight, const std::byte* bias) const;
  /// dx = gradient of the norm's input for narrow, its output's, plus `residual`. After keep_norm().
  void norm_backward(const LayerCall& call, const GptBlockArrays& at, const Norm& norm, std::byte* dx,
                     const std::byte* x, const std::byte* residual) const;
  /// narrow = the norm's output once more, in backward_weight.
  void norm_again(const LayerCall& call, const GptBlockArrays& at, const Norm& norm, const std::byte* x) const;
  void norm_gradient(const LayerCall& call, const Norm& norm, std::byte* weight_gradient,
                     std::byte* bias_gradient) const;

  /// attention of qkv.
  void attend(const LayerCall& call, const GptBlockArrays& at) const;
  /// d_qkv from narrow, the gradient of attention.
  void attend_backward(const LayerCall& call, const GptBlockArrays& at) const;

  void drop(const LayerCall& call, std::byte* values, GptDropoutPlace place) const;
  /// [N, C] gradient of what a dropped branch adds to the residual stream: that stream's, dropped alike.
  void branch_gradient(const LayerCall& call, std::byte* to, const std::byte* gradient,
                       GptDropoutPlace place) const;

  const GptOptions options_;
  const runtime::DType dtype_;
  const std::size_t channels_;

 private:
  [[nodiscard]] Dropout drop_rule(const LayerCall& call, GptDropoutPlace place) const;

  const int index_;
};

}  // namespace ranvier::models
