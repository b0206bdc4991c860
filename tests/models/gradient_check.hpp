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

/// Gradients of the mean loss by central differences of the reference, for every `stride`th element.
template <typename Reference, typename Options>
ReferenceParameters differences(const Options& options, ReferenceParameters parameters,
                                const ReferenceSamples& samples, double factor, std::size_t stride) {
  const Reference reference(options, parameters);
  ReferenceParameters slopes;
  for (auto& [name, values] : parameters)
    for (std::size_t i = 0; i < values.size(); i += stride)
      slopes[name].push_back(slope_in(values[i], 1e-5, [&] { return reference.loss(samples); }) * factor);
  return slopes;
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
