// Runs an architecture's layers on a device, microbatch by microbatch, without ranks. It allocates memory as the layers
// declare it, filled with NaN before every use, so that reads of unwritten values are detected. The memory is the
// host's; a GPU gets copies for each call.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/unit.hpp"
#include "models/families/model.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/reference_model.hpp"
#include "tests/test.hpp"

#include <boost/align/aligned_allocator.hpp>

namespace ranvier::models {

/// Samples first … first + count - 1 of an endless synthetic text, for a model with such options.
template <typename Options>
ReferenceSamples made_up_samples(const Options& options, std::int64_t first, int count) {
  ReferenceSamples samples{.samples = count, .key = {.seed = 77, .step = 5, .first_sample = first}};
  const auto key = runtime::philox_key(1234, runtime::RandomPurpose::test);
  const auto draw = [&](std::int64_t sample, int position) {
    const auto bits =
        runtime::philox(key, {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(position), 0, 0});
    return static_cast<std::int32_t>(bits[0] % static_cast<std::uint32_t>(options.vocab_size));
  };
  for (int b = 0; b < count; ++b)
    for (int t = 0; t < options.sequence_length; ++t) {
      samples.tokens.push_back(draw(first + b, t));
      samples.targets.push_back(draw(first + b, t + 1));
    }
  return samples;
}

/// Aligned like device memory, but exactly as large as requested, so that AddressSanitizer detects overruns.
using HeapMemory = std::vector<std::byte, boost::alignment::aligned_allocator<std::byte, 64>>;

class ModelRun {
 public:
  /// Owns the device: its only full-width stream is the run's. `samples`: size of the largest microbatch. Parameters
  /// have a large spread, so that every gradient matters.
  template <typename Options>
  ModelRun(std::unique_ptr<runtime::Device> device, const Options& options, int samples, const Tuning& tuning = {},
           SavedActivations saved = SavedActivations::few)
      : ModelRun(std::move(device), make_model(options, tuning), make_model(whole(options), tuning), samples,
                 saved) {}

  /// `whole`: the same model without tiles, which determines the initial parameters.
  ModelRun(std::unique_ptr<runtime::Device> device, Architecture model, const Architecture& whole, int samples,
           SavedActivations saved)
      : device_(std::move(device)),
        dtype_(model.precision.compute),
        gradient_dtype_(model.precision.gradient),
        model_(std::move(model)),
        shape_{samples, model_.positions, device_->threads(), saved},
        stream_(device_->make_stream("model", runtime::StreamWidth::whole)) {
    ReferenceParameters drawn;
    std::uint64_t seed = 100;
    for (const UnitSpec& unit : whole.units())
      for (const ParameterSpec& parameter : unit.parameters) {
        const TypedArray values(dtype_, parameter.elements(), ++seed, 0.3);
        const double centre = parameter.initializer.kind == Initializer::Kind::ones ? 1 : 0;
        for (std::size_t i = 0; i < values.size(); ++i) drawn[parameter.name].push_back(centre + values[i]);
      }
    for (const UnitSpec& unit : model_.units()) parameters_.emplace(unit.name, TypedArray(dtype_, unit.elements()));
    set_parameters(drawn);
    for (const auto& layer : model_.layers) {
      const LayerMemory memory = layer->memory(shape_);
      saved_.emplace_back(memory.saved);
      deferred_.emplace_back(memory.deferred);
      workspace_.emplace_back(memory.workspace);
      const std::size_t bytes =
          static_cast<std::size_t>(samples) * layer->output_elements(shape_.positions) * size_of(dtype_);
      outputs_.emplace_back(bytes);
      output_gradients_.emplace_back(bytes);
      for (const UnitSpec& unit : layer->units())
        gradients_.emplace_back(unit, TypedArray(gradient_dtype_, unit.elements()));
    }
    for (auto& [unit, values] : gradients_)
      std::memset(values.data(), 0xff, values.size() * size_of(gradient_dtype_));
  }

  [[nodiscard]] TypedArray& parameters(const std::string& unit) { return parameters_.at(unit); }

  /// Sets the values by tensor, for any tiles; rounded to the run's type.
  void set_parameters(const ReferenceParameters& values) {
    for (const UnitSpec& unit : model_.units()) {
      TypedArray& to = parameters_.at(unit.name);
      for_each_element(unit, [&](const ParameterSpec& parameter, std::size_t in_tensor, std::size_t in_unit) {
        to.set(in_unit, values.at(parameter.name)[in_tensor]);
      });
    }
  }

  /// Parameters for the reference, by tensor.
  [[nodiscard]] ReferenceParameters reference_parameters() const {
    ReferenceParameters all;
    for (const UnitSpec& unit : model_.units()) {
      for_each_element(unit, [&](const ParameterSpec& parameter, std::size_t in_tensor, std::size_t in_unit) {
        tensor_of(all, parameter)[in_tensor] = parameters_.at(unit.name)[in_unit];
      });
    }
    return all;
  }

  /// Runs the forward pass of one microbatch; returns its loss.
  double forward(const ReferenceSamples& samples, double loss_factor, float loss_scale = 1, bool training = true) {
    samples_ = samples;
    loss_factor_ = loss_factor;
    loss_scale_ = loss_scale;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      poison(saved_[i]);
      poison(outputs_[i]);
      poison(workspace_[i]);
      for_each_part(i, model_.layers[i]->parts().forward, [&](LayerCall& call, DeviceCopies& at) {
        call.training = training;
        model_.layers[i]->forward(call, input(i, at), at(outputs_[i]));
      });
    }
    return loss_;
  }

  /// Details of a forward pass without training: each element's loss [B, T], and the logits of `position` of the first
  /// sample.
  struct Details {
    std::vector<double> losses;
    std::vector<float> logits;
  };
  [[nodiscard]] Details details(const ReferenceSamples& samples, double loss_factor, int position) {
    Details found{std::vector<double>(samples.tokens.size()),
                  std::vector<float>(model_.layers.back()->vocabulary())};
    details_ = &found;
    position_ = position;
    forward(samples, loss_factor, 1, false);
    details_ = nullptr;
    return found;
  }

  /// Runs the backward pass of the microbatch whose forward pass was the last.
  void backward(bool accumulate) {
    for (std::size_t i = model_.layers.size(); i-- > 0;) {
      poison(deferred_[i]);
      poison(workspace_[i]);
      if (i > 0) poison(output_gradients_[i - 1]);
      for_each_part(i, model_.layers[i]->parts().backward_input, [&](LayerCall& call, DeviceCopies& at) {
        model_.layers[i]->backward_input(call, input(i, at), at(output_gradients_[i]),
                                         i > 0 ? at(output_gradients_[i - 1]) : nullptr);
      });
      // backward_weight may run late: by then other data overwrite these arrays, except saved ones.
      poison(workspace_[i]);
      if (!keeps_output_gradient(i)) poison(output_gradients_[i]);
    }
    for (std::size_t i = model_.layers.size(); i-- > 0;) {
      for_each_part(i, model_.layers[i]->parts().backward_weight, [&](LayerCall& call, DeviceCopies& at) {
        const auto is_there = [](const std::byte* gradient) { return gradient != nullptr; };
        if (std::none_of(call.gradients.begin(), call.gradients.end(), is_there)) return;
        call.accumulate = accumulate;
        if (keeps_output_gradient(i)) call.output_gradient = at(output_gradients_[i]);
        model_.layers[i]->backward_weight(call, input(i, at));
      });
    }
  }

  /// The output of a layer other than the last.
  [[nodiscard]] TypedArray output(std::size_t layer) const {
    TypedArray values(
        dtype_, static_cast<std::size_t>(samples_.samples) * model_.layers[layer]->output_elements(positions()));
    std::memcpy(values.data(), outputs_[layer].data(), values.size() * size_of(dtype_));
    return values;
  }

  /// Gradients as stored in the layers' own buffers, in the order of layers and their units.
  [[nodiscard]] const std::vector<std::pair<UnitSpec, TypedArray>>& gradients() const { return gradients_; }

  /// Gradients of trained tensors by name, summed over the layers that share one.
  [[nodiscard]] ReferenceParameters gradients_by_name() const {
    ReferenceParameters all;
    for (const auto& entry : gradients_) {
      if (!entry.first.trained) continue;
      const TypedArray& values = entry.second;
      for_each_element(entry.first,
                       [&](const ParameterSpec& parameter, std::size_t in_tensor, std::size_t in_unit) {
                         tensor_of(all, parameter)[in_tensor] += values[in_unit];
                       });
    }
    return all;
  }

  /// Calls f(parameter, element of the tensor, element of the unit) for all elements except padding.
  template <typename F>
  static void for_each_element(const UnitSpec& unit, F&& f) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& parameter = unit.parameters[p];
      for_each_run(parameter, 0, parameter.elements(), [&](std::size_t begin, std::size_t count, std::size_t at) {
        for (std::size_t i = 0; i < count; ++i) f(parameter, begin + i, unit.offset(p) + at + i);
      });
    }
  }

 private:
  template <typename Options>
  static Options whole(Options options) {
    if constexpr (requires { options.tile; }) options.tile = 1;
    return options;
  }

  bool keeps_output_gradient(std::size_t layer) const {
    return model_.layers[layer]->memory(shape_).output_gradient;
  }

  static void poison(HeapMemory& buffer) { std::fill(buffer.begin(), buffer.end(), std::byte{0xff}); }

  int positions() const { return samples_.positions > 0 ? samples_.positions : shape_.positions; }

  const std::byte* input(std::size_t layer, DeviceCopies& at) const {
    if (layer == 0) return reinterpret_cast<const std::byte*>(at(samples_.tokens));
    return at(std::as_const(outputs_[layer - 1]));
  }

  static std::vector<double>& tensor_of(ReferenceParameters& all, const ParameterSpec& parameter) {
    std::size_t elements = 1;
    for (const std::size_t extent : parameter.tensor_shape()) elements *= extent;
    std::vector<double>& tensor = all[parameter.name];
    tensor.resize(elements);
    return tensor;
  }

  /// Calls f(call, copies) for each of these phases of a layer's call, which has pointers to the phase's units only.
  template <typename F>
  void for_each_part(std::size_t layer, const LayerPhases::Units& parts, F&& f) {
    for (std::size_t part = 0; part < parts.size(); ++part) {
      DeviceCopies at(*stream_);
      LayerCall call = call_of(layer, parts[part], at);
      call.part = part;
      f(call, at);
      at.fetch();
    }
  }

  LayerCall call_of(std::size_t layer, const std::vector<std::size_t>& part, DeviceCopies& at) {
    const auto units = model_.layers[layer]->units();
    pointers_.assign(units.size(), nullptr);
    gradient_pointers_.assign(units.size(), nullptr);
    std::size_t first = 0;
    for (std::size_t i = 0; i < layer; ++i) first += model_.layers[i]->units().size();
    for (const std::size_t unit : part) {
      pointers_[unit] = at(std::as_const(parameters_.at(units[unit].name)));
      if (units[unit].trained) gradient_pointers_[unit] = at(gradients_[first + unit].second);
    }
    const std::int32_t* const documents =
        samples_.documents.empty() ? nullptr : at(std::as_const(samples_.documents));
    return {.stream = *stream_,
            .shape = {samples_.samples, positions(), shape_.threads, shape_.saved},
            .key = samples_.key,
            .parameters = pointers_,
            .gradients = gradient_pointers_,
            .saved = at(saved_[layer]),
            .deferred = at(deferred_[layer]),
            .workspace = at(workspace_[layer]),
            .document_starts = documents,
            .positions = documents == nullptr ? nullptr : documents + samples_.documents.size() / 3,
            .document_ends = documents == nullptr ? nullptr : documents + samples_.documents.size() / 3 * 2,
            .targets = reinterpret_cast<const std::byte*>(at(std::as_const(samples_.targets))),
            .loss = at(&loss_, 1),
            .loss_factor = loss_factor_,
            .loss_scale = loss_scale_,
            .details = details_ == nullptr ? EvalOutputs{}
                                           : EvalOutputs{at(details_->losses), at(details_->logits), position_}};
  }

  std::unique_ptr<runtime::Device> device_;
  runtime::DType dtype_, gradient_dtype_;
  Architecture model_;
  MicrobatchShape shape_;
  std::unique_ptr<runtime::Stream> stream_;
  std::map<std::string, TypedArray> parameters_;
  std::vector<HeapMemory> saved_, deferred_, workspace_, outputs_, output_gradients_;
  std::vector<std::pair<UnitSpec, TypedArray>> gradients_;
  std::vector<const std::byte*> pointers_;
  std::vector<std::byte*> gradient_pointers_;
  ReferenceSamples samples_;
  Details* details_ = nullptr;
  int position_ = 0;
  double loss_ = -1, loss_factor_ = 1;
  float loss_scale_ = 1;
};

}  // namespace ranvier::models
