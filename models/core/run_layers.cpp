#include "models/core/run_layers.hpp"

#include "models/ops/cross_entropy.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/philox.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace ranvier::models {
namespace {

/// Key that is equal for layers with the same work and other parameters.
using Likeness = std::tuple<std::vector<std::size_t>, std::size_t, std::size_t, std::size_t, std::size_t>;

Likeness likeness_of(const Layer& layer, const MicrobatchShape& shape) {
  std::vector<std::size_t> extents;
  for (const UnitSpec& unit : layer.units()) {
    for (const ParameterSpec& parameter : unit.parameters)
      extents.insert(extents.end(), parameter.shape.begin(), parameter.shape.end());
    extents.push_back(0);  // separates units and parameters
  }
  const LayerMemory memory = layer.memory(shape);
  return {std::move(extents), memory.saved, memory.deferred, memory.workspace, layer.parts().forward.size()};
}

/// Fills memory with realistic values, uniform in [-scale, scale), from a repeated block of random numbers. GPUs
/// multiply zeros faster, which would falsify measurements.
class Filling {
 public:
  Filling(runtime::StreamView stream, runtime::DType dtype, float scale)
      : stream_(stream), values_(stream.device().allocate(count * size_of(dtype), runtime::MemorySpace::pinned)) {
    runtime::with_float_type(dtype, [&]<typename T>(T) {
      auto* const to = reinterpret_cast<T*>(values_.data());
      for (std::uint32_t i = 0; i < count; i += 4) {
        const auto drawn = runtime::philox({}, {i, 0, 0, 0});
        for (std::uint32_t j = 0; j < 4; ++j)
          to[i + j] = runtime::from_float<T>(scale * (2 * runtime::uniform(drawn[j]) - 1));
      }
    });
  }

  /// Waits for the stream.
  void fill(std::byte* to, std::size_t bytes) const {
    std::size_t filled = std::min(bytes, values_.bytes());
    runtime::copy(stream_, to, values_.data(), filled);
    for (std::size_t more = 0; filled < bytes; filled += more) {
      more = std::min(filled, bytes - filled);
      runtime::copy(stream_, to + filled, to, more);
    }
    stream_.synchronize();
  }

 private:
  static constexpr std::uint32_t count = 300000;  // not a power of two, so that matrix rows differ

  runtime::StreamView stream_;
  runtime::Buffer values_;
};

struct Fillings {
  Fillings(runtime::StreamView stream, runtime::DType dtype)
      : activations(stream, dtype, 1.0f), weights(stream, dtype, 0.05f) {}

  Filling activations, weights;
};

/// One layer with the memory of a microbatch.
class LayerRun {
 public:
  LayerRun(Layer& layer, const Precision& precision, const MicrobatchShape& shape, std::size_t input_bytes,
           std::size_t target_bytes, int targets_of_sample, bool first, bool last, const Fillings& fillings,
           runtime::StreamView stream)
      : layer_(layer), first_(first), last_(last), call_{.stream = stream, .shape = shape, .key = {}} {
    const LayerMemory memory = layer.memory(shape);
    const std::size_t output_bytes = static_cast<std::size_t>(shape.samples) *
                                     layer.output_elements(shape.positions) * size_of(precision.compute);
    const auto array = [&](std::size_t bytes, const Filling& filling) {
      std::byte* const to =
          memory_.emplace_back(stream.device().allocate(bytes, runtime::MemorySpace::device)).data();
      if (bytes > 0) filling.fill(to, bytes);
      return to;
    };
    call_.saved = array(memory.saved, fillings.activations);
    call_.deferred = array(memory.deferred, fillings.activations);
    call_.workspace = array(memory.workspace, fillings.activations);
    input_ = array(input_bytes, fillings.activations);
    input_gradient_ = array(input_bytes, fillings.activations);
    output_ = array(output_bytes, fillings.activations);
    output_gradient_ = array(output_bytes, fillings.activations);
    for (const UnitSpec& unit : layer.units()) {
      parameters_.push_back(array(unit.elements() * size_of(precision.compute), fillings.weights));
      gradients_.push_back(array(unit.elements() * size_of(precision.gradient), fillings.activations));
    }
    call_.parameters = parameters_;
    call_.gradients = gradients_;
    std::byte* const targets = array(target_bytes, fillings.activations);
    call_.targets = targets;
    call_.loss = reinterpret_cast<double*>(
        memory_.emplace_back(stream.device().allocate(sizeof(double), runtime::MemorySpace::pinned)).data());
    runtime::fill_zero(stream, targets, target_bytes);  // token 0 is in every vocabulary
    if (last && targets_of_sample > 0 && targets_of_sample < shape.positions)
      leave_targets(targets, static_cast<std::size_t>(targets_of_sample));
    if (first) runtime::fill_zero(stream, input_, input_bytes);
  }

  void run() {
    const LayerPhases parts = layer_.parts();
    std::size_t& part = call_.part;
    for (part = 0; part < parts.forward.size(); ++part) layer_.forward(call_, input_, output_);
    for (part = 0; part < parts.backward_input.size(); ++part) {
      layer_.backward_input(call_, input_, last_ ? nullptr : output_gradient_, first_ ? nullptr : input_gradient_);
    }
    call_.output_gradient = last_ ? nullptr : output_gradient_;
    for (const bool accumulate : {false, true}) {
      call_.accumulate = accumulate;
      for (part = 0; part < parts.backward_weight.size(); ++part) layer_.backward_weight(call_, input_);
    }
    call_.stream.synchronize();
  }

 private:
  /// The first ones of each sample, as many as there may be.
  void leave_targets(std::byte* to, std::size_t targets) const {
    const auto positions = static_cast<std::size_t>(call_.shape.positions);
    std::vector<std::int32_t> rest(positions - targets, no_target);
    for (std::size_t sample = 0; sample < static_cast<std::size_t>(call_.shape.samples); ++sample) {
      runtime::copy(call_.stream, to + (sample * positions + targets) * sizeof(std::int32_t), rest.data(),
                    rest.size() * sizeof(std::int32_t));
    }
    call_.stream.synchronize();
  }

  Layer& layer_;
  bool first_, last_;  // whether the layer is the model's first (reads tokens) or last (computes the loss)
  std::vector<runtime::Buffer> memory_;
  std::byte *input_, *input_gradient_, *output_, *output_gradient_;
  std::vector<const std::byte*> parameters_;
  std::vector<std::byte*> gradients_;
  LayerCall call_;
};

}  // namespace

void run_each_layer(const Architecture& architecture, const Precision& precision, const SampleBytes& sample,
                    std::span<const MicrobatchShape> shapes, runtime::StreamView stream) {
  const std::size_t layers = architecture.layers.size();
  const Fillings fillings(stream, precision.compute);
  for (const MicrobatchShape& shape : shapes) {
    const auto samples = static_cast<std::size_t>(shape.samples);
    std::set<Likeness> seen;
    std::size_t input_bytes = samples * sample.input;
    for (std::size_t l = 0; l < layers; ++l) {
      Layer& layer = *architecture.layers[l];
      const bool last = l + 1 == layers;
      if (seen.insert(likeness_of(layer, shape)).second) {
        try {
          LayerRun(layer, precision, shape, input_bytes, last ? samples * sample.target : 0, architecture.targets,
                   l == 0, last, fillings, stream)
              .run();
        } catch (const Error& error) {
          if (error.code() != ErrorCode::memory) throw;
        }
      }
      input_bytes = samples * layer.output_elements(shape.positions) * size_of(precision.compute);
    }
  }
  if constexpr (runtime::with_cuda) {
    if (stream.device().kind() == runtime::DeviceKind::cuda) cuda::release_stream_workspace(stream);
  }
}

}  // namespace ranvier::models
