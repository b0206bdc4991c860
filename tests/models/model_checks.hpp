// Properties of models of any family; each family has a test that calls these.
#pragma once

#include "models/core/unit.hpp"
#include "tests/models/gradient_check.hpp"
#include "tests/models/model_run.hpp"
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
  std::size_t stride = 1;    ///< stride between the elements whose gradients are compared
  double loss_error = 1e-6;  ///< relative
  bool scaled = false;       ///< the allowed error grows with outputs larger than 1
  /// Elements of tensors whose gradient must be zero; null: there are none.
  std::function<bool(const std::string& tensor, std::size_t element)> has_no_slope;
};

/// Compares the loss, every layer's output and every tensor's gradient of a first microbatch with the reference.
template <typename Options>
void check_reference(ModelRun& run, const Options& options, const ReferenceSamples& samples,
                     const ReferenceCheck& check) {
  const auto has_no_slope = [&](const std::string& tensor, std::size_t element) {
    return check.has_no_slope && check.has_no_slope(tensor, element);
  };
  const double factor = 1.0 / 100;
  const double loss = run.forward(samples, factor);
  run.backward(false);

  const ReferenceParameters parameters = run.reference_parameters();
  std::vector<std::vector<double>> activations;
  const double expected = ReferenceModel(options, parameters).loss(samples, &activations);
  CHECK(loss == doctest::Approx(expected * factor).epsilon(check.loss_error));
  for (std::size_t layer = 0; layer < activations.size(); ++layer) {
    const TypedArray output = run.output(layer);
    REQUIRE(output.size() == activations[layer].size());
    const double size = norm(activations[layer]) / std::sqrt(static_cast<double>(output.size()));
    double worst = 0;
    for (std::size_t i = 0; i < output.size(); ++i)
      worst = worse(worst, std::abs(output[i] - activations[layer][i]));
    CHECK(worst < 2e-5 * (check.scaled ? std::max(1.0, size) : 1.0));
  }

  const auto gradients = run.gradients_by_name();
  for (const auto& [tensor, slopes] :
       differences<ReferenceModel>(options, parameters, samples, factor, check.stride)) {
    CAPTURE(tensor);
    const auto& ours = gradients.at(tensor);
    const double scale = norm(ours) / std::sqrt(static_cast<double>(ours.size()));
    CHECK((scale > 5e-6 || has_no_slope(tensor, 0)));
    double worst = 0;
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      const double difference = std::abs(ours[i * check.stride] - slopes[i]);
      worst = worse(worst, has_no_slope(tensor, i * check.stride) ? 1e3 * difference : difference / scale);
    }
    CHECK(worst < 2e-4);
  }
  for (const auto& [unit, gradient] : run.gradients()) CHECK(gaps_untouched(unit, gradient));
}

/// Checks shapes of some of a model's tensors, and that matrices decay. Returns all tensors.
inline std::map<std::string, ParameterSpec> check_tensors(
    const Architecture& model, const std::map<std::string, std::vector<std::size_t>>& shapes) {
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

/// Tensors whose gradients are only rounding; null: there are none.
using Skips = std::function<bool(const std::string& tensor)>;

/// A model in tiles gives the result without tiles, microbatch after microbatch, except for the order of sums.
template <typename Options>
void check_tiles(const Options& tiled_options, const std::vector<ReferenceSamples>& microbatches,
                 const Skips& skips = {}) {
  Options whole_options = tiled_options;
  whole_options.tile = 1;
  ModelRun whole(device_of(2, true), whole_options, 3), tiled(device_of(2, true), tiled_options, 3);
  bool accumulate = false;
  for (const ReferenceSamples& samples : microbatches) {
    CHECK(tiled.forward(samples, 0.01) == doctest::Approx(whole.forward(samples, 0.01)).epsilon(1e-6));
    whole.backward(accumulate);
    tiled.backward(accumulate);
    accumulate = true;
  }
  for (std::size_t layer = 0; layer <= static_cast<std::size_t>(tiled_options.layers); ++layer)
    check_close(doubles(tiled.output(layer)), doubles(whole.output(layer)), allowed(1e-6));
  const auto gradients = tiled.gradients_by_name();
  for (const auto& [name, expected] : whole.gradients_by_name()) {
    CAPTURE(name);
    if (!skips || !skips(name)) check_close(gradients.at(name), expected, allowed(4e-6), 1e-9);
  }
}

/// Relative difference allowed between a model in half precision and the same one in fp32.
struct HalfError {
  double loss = 0;
  double gradients = 0;
};

template <typename Options>
void check_follows_fp32(const Options& half, const Options& whole, const ReferenceSamples& samples, HalfError error,
                        const Skips& skips = {}) {
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
    if (skips && skips(tensor)) continue;
    CHECK(norm(expected) > 0);
    for (double& value : gradients.at(tensor)) value /= loss_scale;
    check_close(gradients.at(tensor), expected, error.gradients);
  }
}

/// Runs of the same microbatch, all of which have the bits of the first.
class BitsOfFirst {
 public:
  [[nodiscard]] bool any() const noexcept { return loss_.has_value(); }

  void check(ModelRun run, const ReferenceSamples& samples) {
    const double loss = run.forward(samples, 1.0 / 100);
    run.backward(false);
    run.backward(true);
    if (!loss_) {
      loss_ = loss;
      for (const auto& [unit, gradient] : run.gradients()) gradients_.push_back(gradient);
    }
    CHECK(loss == *loss_);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      CAPTURE(run.gradients()[i].first.name);
      CHECK(same_bits(run.gradients()[i].second, gradients_[i]));
    }
  }

 private:
  std::optional<double> loss_;
  std::vector<TypedArray> gradients_;
};

/// Any number of threads and any kind of device give a family's model the same bits.
template <typename Options>
void check_bits(const Options& options, const ReferenceSamples& samples) {
  BitsOfFirst bits;
  for (const auto& [threads, at_once] : {std::pair{1, true}, {2, false}, {3, true}}) {
    if (repeats(threads, at_once)) continue;
    CAPTURE_ALL(threads, at_once);
    bits.check(ModelRun(device_of(threads, at_once), options, 3), samples);
  }
}

/// Microbatches of two samples, the last perhaps of one, have the loss and the gradients of all `count` at once.
/// `samples(first, count)` returns the samples of a microbatch.
template <typename Options, typename Samples>
void check_microbatches(const Options& options, int count, Samples samples, const Skips& skips = {}) {
  ModelRun together(device_of(2, true), options, count), apart(device_of(2, true), options, 2);
  const double factor = 1.0 / 35;
  const double loss = together.forward(samples(0, count), factor);
  together.backward(false);
  double sum = 0;
  for (int first = 0; first < count; first += 2) {
    sum += apart.forward(samples(first, std::min(2, count - first)), factor);
    apart.backward(first > 0);
  }
  CHECK(sum == doctest::Approx(loss).epsilon(allowed(1e-7)));
  const auto expected = together.gradients_by_name();
  for (const auto& [tensor, gradient] : apart.gradients_by_name()) {
    CAPTURE(tensor);
    if (skips && skips(tensor)) continue;
    check_close(gradient, expected.at(tensor), allowed(2e-6));
  }
}

}  // namespace ranvier::models
