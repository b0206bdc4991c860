// Access to parameters, gradients, rows and memory in a LayerCall, and a head's losses. Any thread.
#pragma once

#include "models/core/layer.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/norm.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ranvier::models {

[[nodiscard]] inline float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

/// N = B·T
[[nodiscard]] inline std::size_t rows(const MicrobatchShape& shape) {
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
}
[[nodiscard]] inline std::size_t rows(const LayerCall& call) { return rows(call.shape); }

/// The call with other numbers of samples and positions.
[[nodiscard]] inline LayerCall with_rows(LayerCall call, int samples, int positions) {
  call.shape.samples = samples;
  call.shape.positions = positions;
  return call;
}

[[nodiscard]] inline const std::byte* parameter(const LayerCall& call, const ParameterRef& place,
                                                runtime::DType dtype) {
  return call.parameters[place.unit] + place.offset * size_of(dtype);
}
[[nodiscard]] inline std::byte* gradient(const LayerCall& call, const ParameterRef& place, runtime::DType dtype) {
  return call.gradients[place.unit] + place.offset * size_of(dtype);
}

/// Whether the call writes the parameter's gradient; false if it is frozen.
[[nodiscard]] inline bool is_trained(const LayerCall& call, const ParameterRef& place) {
  return call.gradients[place.unit] != nullptr;
}

/// Stores the gradient of a parameter of n elements from sums in float, unless the parameter is frozen.
inline void store_gradient(const LayerCall& call, const ParameterRef& place, runtime::DType dtype,
                           const float* sums, std::size_t n) {
  if (is_trained(call, place))
    store_gradient(call.stream, gradient(call, place, dtype), dtype, sums, n, call.accumulate);
}

/// Dropout of the call's microbatch at one site of the model.
[[nodiscard]] inline Dropout dropout_at(const LayerCall& call, float rate, std::uint32_t site) {
  return make_dropout(rate, call.key.seed, call.key.step, site, call.key.first_sample);
}

/// Address of an array that is saved at this offset, or `scratch` if it is not saved.
[[nodiscard]] inline std::byte* saved_or(const LayerCall& call, std::optional<std::size_t> offset,
                                         std::byte* scratch) {
  return offset ? call.saved + *offset : scratch;
}

/// Layouts of a call's arrays; base of a layer's struct with their offsets.
struct CallMemory {
  [[nodiscard]] LayerMemory bytes(bool output_gradient = false) const {
    return {saved.bytes(), deferred.bytes(), workspace.bytes(), output_gradient};
  }

  MemoryLayout saved, deferred, workspace;
};

/// The call's shape. Throws ErrorCode::internal if the device has more threads than the call's memory is laid out for.
[[nodiscard]] inline const MicrobatchShape& planned_shape(const LayerCall& call, const std::string& layer) {
  expect(call.stream.device().threads() <= call.shape.threads,
         "{}: memory is laid out for {} threads, but the device has {}: set MicrobatchShape::threads", layer,
         call.shape.threads, call.stream.device().threads());
  return call.shape;
}

/// Computes the losses of a head's logits, which training replaces by their gradients, and LayerCall::correct unless it
/// is null. `row_losses`, `exponentials`: offsets of cross_entropy()'s arrays in the workspace.
inline void compute_losses(const LayerCall& call, const CrossEntropyShape& shape, runtime::DType dtype,
                           std::byte* logits, std::size_t row_losses, std::size_t exponentials) {
  const auto* const targets = reinterpret_cast<const std::int32_t*>(call.targets);
  cross_entropy(call.stream, shape, dtype,
                {.logits = logits,
                 .targets = targets,
                 .loss = call.loss,
                 .loss_factor = call.loss_factor,
                 .gradient = call.training,
                 .gradient_factor = static_cast<float>(call.loss_factor * call.loss_scale),
                 .row_losses = reinterpret_cast<double*>(call.workspace + row_losses),
                 .exponentials = floats(call.workspace + exponentials)});
  if (call.correct != nullptr) count_correct(call.stream, shape, dtype, call.correct, logits, targets);
}

}  // namespace ranvier::models
