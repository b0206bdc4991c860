// Common parts of the tests of complete models: devices to run on, and comparison of gradients with a reference.
#pragma once

#include "models/core/layer.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/reference_model.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

/// The GPU if the program is for one.
inline std::unique_ptr<runtime::Device> device_of(int threads, bool at_once) {
  if (on_gpu_here()) return tests::make_device();
  return at_once ? runtime::make_inline_device({.threads = threads})
                 : runtime::make_cpu_device({.threads = threads});
}

/// On a GPU, threads and kind do not change the device; two runs show whether bits stay the same.
inline bool repeats(int threads, bool at_once) { return on_gpu_here() && (!at_once || threads > 2); }

/// On a GPU, sums of products have other orders for other shapes.
inline double allowed(double error) { return on_gpu_here() ? 4 * error : error; }

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// √Σ (a - b)² is at most `error` times the norm of b, plus `absolute`.
inline void check_close(const std::vector<double>& a, const std::vector<double>& b, double error,
                        double absolute = 0) {
  std::vector<double> apart;
  for (std::size_t i = 0; i < b.size(); ++i) apart.push_back(a[i] - b[i]);
  CHECK(norm(apart) <= error * norm(b) + absolute);
}

/// Stride between the elements whose gradients are compared: 1 in a long run.
inline std::size_t stride_of(std::size_t usual, std::size_t under_sanitizers) {
  return test::sanitized ? under_sanitizers : tests::long_run() ? 1 : usual;
}

/// Whether a tensor's gradient is only rounding: keys' biases move all scores of a query equally.
inline bool is_rounding(const std::string& tensor) { return tensor.ends_with("self.key.bias"); }

/// Whether an element's gradient must be zero.
template <typename Options>
bool has_no_slope(const Options&, const std::string&, std::size_t) {
  return false;
}

struct SlopeCheck {
  std::size_t stride = 1;  ///< stride between the compared elements
  std::size_t most = 0;    ///< number of them per tensor; 0: all until the tensor's end
  double step = 1e-5;      ///< distance of the central differences
  double error = 2e-4;     ///< relative to the tensor's gradient
  std::function<bool(const std::string& tensor)> skips = nullptr;  ///< null: none
};

/// Compares gradients of the mean loss with central differences of the reference, which reads `parameters`.
template <typename Reference, typename Options>
void check_slopes(const Reference& reference, const Options& options, const ReferenceParameters& gradients,
                  ReferenceParameters& parameters, const ReferenceSamples& samples, double factor,
                  const SlopeCheck& check) {
  for (auto& [tensor, values] : parameters) {
    if (check.skips && check.skips(tensor)) continue;
    CAPTURE(tensor);
    const auto& ours = gradients.at(tensor);
    const double scale = norm(ours) / std::sqrt(static_cast<double>(ours.size()));
    CHECK((scale > 5e-6 || has_no_slope(options, tensor, 0)));
    const std::size_t count =
        check.most > 0 ? std::min(check.most, values.size()) : (values.size() + check.stride - 1) / check.stride;
    double worst = 0;
    for (std::size_t n = 0; n < count; ++n) {
      const std::size_t i = n * check.stride % values.size();
      const double slope = slope_in(values[i], check.step, [&] { return reference.loss(samples); }) * factor;
      const double difference = std::abs(ours[i] - slope);
      worst = worse(worst, has_no_slope(options, tensor, i) ? 1e3 * difference : difference / scale);
    }
    CHECK(worst < check.error);
  }
}

/// Whether gaps of a unit's gradient are unchanged: no layer writes them.
inline bool gaps_untouched(const UnitSpec& unit, const TypedArray& gradient) {
  std::vector<bool> owned(gradient.size());
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const std::size_t stored = std::max(unit.parameters[p].elements(), unit.parameters[p].stored_elements);
    for (std::size_t i = 0; i < stored; ++i) owned[unit.offset(p) + i] = true;
  }
  for (std::size_t i = 0; i < gradient.size(); ++i)
    if (!owned[i] && !std::isnan(gradient[i])) return false;
  return true;
}

}  // namespace ranvier::models
