// What every family's make_…() expects of its options. Any thread.
#pragma once

#include "models/layer.hpp"
#include "runtime/error.hpp"

namespace ranvier::models {

/// Throws ErrorCode::usage for sizes that make no model, in the words of the family's size_problem(), and
/// ErrorCode::internal for a precision that layers do not have.
template <typename Options>
void expect_sizes(const Options& options) {
  if (const auto problem = size_problem(options)) fail(ErrorCode::usage, "{}", *problem);
  const Precision& precision = options.precision;
  expect(precision.gradient == runtime::DType::f32 || precision.gradient == precision.compute,
         "gradients are fp32 or of the compute type");
}

}  // namespace ranvier::models
