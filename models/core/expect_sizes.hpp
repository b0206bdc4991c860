// Checks options for every family's make_…(). Any thread.
#pragma once

#include "models/core/layer.hpp"
#include "runtime/base/error.hpp"

namespace ranvier::models {

/// Throws ErrorCode::usage for invalid sizes, with the text of size_problem(), and ErrorCode::internal for an
/// unsupported precision.
template <typename Options>
void expect_sizes(const Options& options) {
  if (const auto problem = size_problem(options)) fail(ErrorCode::usage, "{}", *problem);
  const Precision& precision = options.precision;
  expect(precision.gradient == runtime::DType::f32 || precision.gradient == precision.compute,
         "gradients are fp32 or of the compute type");
}

}  // namespace ranvier::models
