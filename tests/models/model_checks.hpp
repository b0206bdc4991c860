// Properties of models of any family; each family has a test that calls these.
#pragma once

#include "models/core/unit.hpp"
#include "tests/models/families.hpp"
#include "tests/models/gradient_check.hpp"
#include "tests/models/model_run.hpp"
#include "tests/models/reference_resnet.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

/// The greatest difference from logits of the reference, as a share of their size.
inline double logit_error(std::span<const float> logits, const double* expected) {
  double error = 0, size = 0;
  for (std::size_t v = 0; v < logits.size(); ++v) {
    error = worse(error, std::abs(static_cast<double>(logits[v]) - expected[v]));
    size = std::max(size, std::abs(expected[v]));
  }
  return error / size;
}

/// The parameters of a run of the training model.
inline UnitSource weights_of(ModelRun& run) {
  return [&run](const UnitSpec& unit, std::size_t begin, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(run.parameters(unit.name)[begin + i]);
  };
}

struct ReferenceCheck {
  double factor = 1.0 / 100;
  float loss_scale = 1;
  double loss_error = 1e-6;    ///< relative
  double output_error = 2e-5;  ///< absolute
  bool scaled = false;         ///< it grows with outputs larger than 1
  SlopeCheck slopes = {};
};

/// Compares the loss, every layer's output and every tensor's gradient of a first microbatch with the reference.
template <typename Options>
void check_reference(ModelRun& run, const Options& options, const ReferenceSamples& samples,
                     const ReferenceCheck& check) {
  using Reference = std::conditional_t<std::is_same_v<Options, ResnetOptions>, ReferenceResnet, ReferenceModel>;
  const double loss = run.forward(samples, check.factor, check.loss_scale);
  run.backward(false);

  ReferenceParameters parameters = run.reference_parameters();
  const Reference reference(options, parameters);
  std::vector<std::vector<double>> activations;
  const double expected = reference.loss(samples, &activations);
  CHECK(loss == doctest::Approx(expected * check.factor).epsilon(check.loss_error));
  for (std::size_t layer = 0; layer < activations.size(); ++layer) {
    const TypedArray output = run.output(layer);
    REQUIRE(output.size() == activations[layer].size());
    const double size = norm(activations[layer]) / std::sqrt(static_cast<double>(output.size()));
    double worst = 0;
    for (std::size_t i = 0; i < output.size(); ++i)
      worst = worse(worst, std::abs(output[i] - activations[layer][i]));
    CHECK(worst < check.output_error * (check.scaled ? std::max(1.0, size) : 1.0));
  }

  auto gradients = run.gradients_by_name();
  for (auto& [tensor, values] : gradients)
    for (double& value : values) value /= static_cast<double>(check.loss_scale);
  check_slopes(reference, options, gradients, parameters, samples, check.factor, check.slopes);
  for (const auto& [unit, gradient] : run.gradients()) CHECK(gaps_untouched(unit, gradient));
}

/// Compares every member of a family with the reference.
template <typename Options>
void check_references(const Family<Options>& family, std::size_t stride) {
  for (const auto& [name, options] : family) {
    CAPTURE_ALL(name, options.tile);
    ModelRun run(device_of(2, true), options, 3);
    check_reference(run, options, made_up_samples(options, 40, 3),
                    {.loss_error = allowed(1e-6),
                     .scaled = std::is_same_v<Options, LlamaOptions>,
                     .slopes = {.stride = stride}});
  }
}

/// By tensor.
using Shapes = std::map<std::string, std::vector<std::size_t>>;

/// Checks shapes of some of a model's tensors, and that matrices decay. Returns all tensors.
inline std::map<std::string, ParameterSpec> check_tensors(const Architecture& model, const Shapes& shapes) {
  std::map<std::string, ParameterSpec> tensors;
  for (const UnitSpec& unit : model.units())
    for (const ParameterSpec& parameter : unit.parameters) tensors.emplace(parameter.name, parameter);
  for (const auto& [name, shape] : shapes) {
    CAPTURE(name);
    REQUIRE(tensors.contains(name));
    CHECK(tensors.at(name).shape == shape);
    CHECK(tensors.at(name).decays == (shape.size() > 1));
  }
  return tensors;
}

/// A model in tiles gives the result without tiles, microbatch after microbatch, except for the order of sums.
template <typename Options>
void check_tiles(const Options& tiled_options) {
  ModelRun whole(device_of(2, true), in_tiles(tiled_options, 1), 3), tiled(device_of(2, true), tiled_options, 3);
  for (const bool accumulate : {false, true}) {
    const ReferenceSamples samples = made_up_samples(tiled_options, accumulate ? 43 : 40, 3);
    CHECK(tiled.forward(samples, 0.01) == doctest::Approx(whole.forward(samples, 0.01)).epsilon(1e-6));
    whole.backward(accumulate);
    tiled.backward(accumulate);
  }
  for (std::size_t layer = 0; layer <= static_cast<std::size_t>(tiled_options.layers); ++layer)
    check_close(doubles(tiled.output(layer)), doubles(whole.output(layer)), allowed(1e-6));
  const auto gradients = tiled.gradients_by_name();
  for (const auto& [name, expected] : whole.gradients_by_name()) {
    CAPTURE(name);
    if (!is_rounding(name)) check_close(gradients.at(name), expected, allowed(4e-6), 1e-9);
  }
}

/// Compares a family's members in 4 or 2 tiles with the reference, and with the same models without tiles.
template <typename Options>
void check_tiled_references(const Family<Options>& family, std::size_t stride) {
  int tile = 4;
  for (const auto& [name, plain] : family) {
    const Options options = in_tiles(plain, std::exchange(tile, 6 - tile));
    check_references<Options>({{name, options}}, stride);
    CAPTURE(name);
    check_tiles(options);
  }
}

/// Relative difference allowed between a model in half precision and the same one in fp32.
struct HalfError {
  double loss = 0;
  double gradients = 0;
};

template <typename Options>
void check_follows_fp32(const Options& half, const Options& whole, const ReferenceSamples& samples, HalfError error,
                        const std::function<bool(const std::string& tensor)>& skips = is_rounding) {
  ModelRun run(device_of(2, true), half, samples.samples), exact(device_of(2, true), whole, samples.samples);
  exact.set_parameters(run.reference_parameters());
  const float loss_scale = half.precision.compute == runtime::DType::f16 ? 1024 : 1;
  const double loss = run.forward(samples, 1.0 / 100, loss_scale);
  run.backward(false);
  CHECK(loss == doctest::Approx(exact.forward(samples, 1.0 / 100)).epsilon(error.loss));
  exact.backward(false);
  auto gradients = run.gradients_by_name();
  for (const auto& [tensor, expected] : exact.gradients_by_name()) {
    CAPTURE(tensor);
    if (skips(tensor)) continue;
    CHECK(norm(expected) > 0);
    for (double& value : gradients.at(tensor)) value /= loss_scale;
    check_close(gradients.at(tensor), expected, error.gradients);
  }
}

/// Calls f(options, exact, unit) for each member of a family in half precision, with fp32 and with half gradients.
/// `exact`: in fp32; `unit`: rounding of the half precision, in units of f16's.
template <typename Options, typename F>
void for_each_half(Family<Options> (*family_of)(Precision), F f) {
  const auto exact = family_of({});
  for (const Precision precision :
       {Precision{runtime::DType::bf16, runtime::DType::f32}, Precision{runtime::DType::bf16, runtime::DType::bf16},
        Precision{runtime::DType::f16, runtime::DType::f16}}) {
    const auto members = family_of(precision);
    for (std::size_t i = 0; i < members.size(); ++i) {
      CAPTURE_ALL(to_string(precision.compute), to_string(precision.gradient), members[i].first);
      f(members[i].second, exact[i].second, precision.compute == runtime::DType::bf16 ? 8.0 : 1.0);
    }
  }
}

/// These numbers of threads and kinds of device give a family's model the same bits.
template <typename Options>
void check_bits(const Options& options, const ReferenceSamples& samples,
                const std::vector<std::pair<int, bool>>& devices = {{1, true}, {2, false}, {3, true}}) {
  std::optional<double> first;
  std::vector<TypedArray> gradients;
  for (const auto& [threads, at_once] : devices) {
    if (repeats(threads, at_once)) continue;
    CAPTURE_ALL(threads, at_once);
    ModelRun run(device_of(threads, at_once), options, 3);
    const double loss = run.forward(samples, 1.0 / 100);
    run.backward(false);
    run.backward(true);
    if (!first) {
      first = loss;
      for (const auto& [unit, gradient] : run.gradients()) gradients.push_back(gradient);
    }
    CHECK(loss == *first);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      CAPTURE(run.gradients()[i].first.name);
      CHECK(same_bits(run.gradients()[i].second, gradients[i]));
    }
  }
}

/// Parts of samples, as microbatches, have the loss and the gradients of all samples at once. The first part is the
/// largest.
template <typename Options>
void check_parts(const Options& options, const ReferenceSamples& all, const std::vector<ReferenceSamples>& parts) {
  ModelRun together(device_of(2, true), options, all.samples),
      apart(device_of(2, true), options, parts.front().samples);
  const double factor = 1.0 / 35, loss = together.forward(all, factor);
  together.backward(false);
  double sum = 0;
  bool accumulate = false;
  for (const ReferenceSamples& part : parts) {
    sum += apart.forward(part, factor);
    apart.backward(std::exchange(accumulate, true));
  }
  CHECK(sum == doctest::Approx(loss).epsilon(allowed(1e-7)));
  const auto expected = together.gradients_by_name();
  for (const auto& [tensor, gradient] : apart.gradients_by_name()) {
    CAPTURE(tensor);
    if (!is_rounding(tensor)) check_close(gradient, expected.at(tensor), allowed(2e-6));
  }
}

/// The same for microbatches of two samples, the last perhaps of one.
template <typename Options>
void check_microbatches(const Options& options, int count) {
  std::vector<ReferenceSamples> parts;
  for (int first = 0; first < count; first += 2)
    parts.push_back(made_up_samples(options, 10 + first, std::min(2, count - first)));
  check_parts(options, made_up_samples(options, 10, count), parts);
}

}  // namespace ranvier::models
