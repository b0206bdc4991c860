// Compares operators with their definitions in double: a row per operator and shape, checked on every device of the
// program (every_device.hpp).
//
//   check_operator({.name = "tanh",
//                   .outputs = {{"y", TypedArray(dtype, n),
//                                each([&](std::size_t i) { return within(std::tanh(x[i]), 1e-6); })}},
//                   .call = [&](StreamView stream, DeviceCopies& at, Outputs& out) {
//                     tanh_forward(stream, dtype, at(out[0]), at(x), n);
//                   }});
#pragma once

#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

using Outputs = std::vector<TypedArray>;

/// Value of the definition, and the allowed error.
struct Bound {
  double value = 0, error = 0;

  [[nodiscard]] bool holds(double result) const {
    if (std::isnan(value)) return std::isnan(result);
    return result == value || (std::isfinite(value) && std::abs(result - value) <= error);
  }
};

inline Bound within(double value, double relative, double absolute = 0) {
  return {value, std::abs(value) * relative + absolute};
}

using Expectation = std::function<Bound(const Outputs& results, std::size_t element)>;

/// Bounds by element, from a function.
template <typename Function>
Expectation each(Function bound) {
  return [bound](const Outputs&, std::size_t i) { return bound(i); };
}
/// Values by element, with an error.
template <typename Values>
Expectation given(Values values, double relative = 0, double absolute = 0) {
  return each([=](std::size_t i) { return within(values[i], relative, absolute); });
}
inline Expectation given(std::vector<Bound> bounds) {
  return each([bounds = std::move(bounds)](std::size_t i) { return bounds[i]; });
}

struct Operator {
  struct Output {
    std::string name;
    TypedArray before;                     ///< contents before the call
    Expectation expected = nullptr;        ///< null: not checked here
    std::optional<std::size_t> same_as{};  ///< the output whose bits this one must have
  };

  std::string name;  ///< and shape
  std::vector<Output> outputs;
  std::function<void(runtime::StreamView, DeviceCopies&, Outputs&)> call;
  bool repeats = false;  ///< whether outputs must have the same bits on every device
};

/// Returns the outputs of the first device.
inline Outputs check_operator(const Operator& op) {
  std::optional<Outputs> first;
  INFO(op.name, ", ", std::string(to_string(op.outputs.front().before.dtype())));
  on_every_device([&](runtime::StreamView stream) {
    Outputs results;
    for (const Operator::Output& output : op.outputs) results.push_back(output.before);
    DeviceCopies at(stream);
    op.call(stream, at, results);
    at.fetch();
    for (std::size_t o = 0; o < results.size(); ++o) {
      const Operator::Output& output = op.outputs[o];
      CAPTURE(output.name);
      std::size_t wrong = 0;
      for (std::size_t i = 0; output.expected && i < results[o].size(); ++i) {
        const Bound bound = output.expected(results, i);
        if (!bound.holds(results[o][i]) && wrong++ == 0)
          MESSAGE(op.name << ", " << output.name << "[" << i << "] is " << results[o][i] << ", not " << bound.value
                          << " within " << bound.error);
      }
      CHECK(wrong == 0);
      if (output.same_as) CHECK(same_bits(results[o], results[*output.same_as]));
      if (op.repeats && first) CHECK(same_bits(results[o], (*first)[o]));
    }
    if (!first) first = results;
  });
  return *first;
}

}  // namespace ranvier::models
