#include "apps/kernels/kernel_choice.hpp"

#include "models/ops/attention_choice.hpp"
#include "runtime/device/cuda_build.hpp"

namespace ranvier::apps {

using models::AttentionKernels;

namespace {

AttentionKernels asked_kernels(const TrainOptions& options, bool library_is_built) {
  const bool on_gpu = options.device.device == DeviceFlag::cuda;
  const bool half = options.trainer.precision.compute != runtime::DType::f32;
  const auto of_model = models::attention_shape(options.model.sizes);
  if (!of_model && options.device.attention == AttentionKernels::cudnn)
    reject("--attention cudnn has no effect: --model {} has no attention; remove --attention", options.model.name);
  if (!of_model) return AttentionKernels::own;
  models::AttentionShape shape = *of_model;
  shape.kernels = AttentionKernels::cudnn;
  const bool drops = models::dropout_of(options.model.sizes) != 0;
  const bool masks = options.data.documents != models::Documents::join;
  const bool suits = models::library_attention_suits(shape, runtime::DType::bf16);
  if (options.device.attention == AttentionKernels::cudnn) {
    const std::string no_heads = fmt::format(
        "has no kernels for {} channels per head; use --heads for a multiple of 8, at most 128", shape.channels);
    for (const auto& [refused, reason] : std::initializer_list<std::pair<bool, std::string_view>>{
             {!on_gpu, "needs a GPU; add --device cuda"},
             {!half, "has no kernels for fp32; use --precision bf16"},
             {drops, "uses other dropout masks than the built-in kernels; use --dropout 0"},
             {masks,
              "has no kernels for document masks (--documents mask or pad, --prompt-field, --label-field); use "
              "--attention ranvier"},
             {!suits, no_heads},
             {!library_is_built,
              "needs cuDNN, which this build lacks; install cuDNN 9 and cudnn-frontend and rebuild"}})
      if (refused) reject("--attention cudnn {}, or use --attention auto", reason);
    return AttentionKernels::cudnn;
  }
  const bool measures = options.device.attention == AttentionKernels::measured && options.device.measures_products;
  return measures && on_gpu && half && !drops && !masks && suits && library_is_built ? AttentionKernels::measured
                                                                                     : AttentionKernels::own;
}

}  // namespace

AttentionKernels attention_kernels(const TrainOptions& options, bool library_is_built) {
  const AttentionKernels kernels = asked_kernels(options, library_is_built);
  if (options.device.fast_attention_backward && kernels == AttentionKernels::own)
    reject(
        "--attention-backward fast needs cuDNN, but this run uses the deterministic built-in kernels; remove "
        "--attention-backward or add --attention cudnn");
  return kernels;
}

AttentionKernels attention_kernels(const TrainOptions& options) {
  bool library_is_built = false;
  if constexpr (runtime::with_cuda) library_is_built = models::attention_library_built();
  return attention_kernels(options, library_is_built);
}

}  // namespace ranvier::apps
