#include "models/ops/target_rows.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <limits>

namespace ranvier::models {
namespace {

void check(const TargetRows& shape) {
  expect(shape.chosen <= shape.positions &&
             shape.positions <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
         "{} of {} positions of a sample", shape.chosen, shape.positions);
}

/// Cost of reading and writing all gathered rows, and reading their places.
runtime::WorkCost cost_of_rows(const TargetRows& shape, std::size_t row_bytes) {
  return runtime::elementwise_cost(shape.rows() * (2 * row_bytes + sizeof(std::int32_t)));
}

}  // namespace

void choose_rows(runtime::StreamView stream, const TargetRows& shape, std::int32_t* places,
                 std::int32_t* chosen_targets, const std::int32_t* targets) {
  check(shape);
  const std::size_t bytes = (shape.all() + 2 * shape.rows()) * sizeof(std::int32_t);
  on_device<choose_rows_cpu, choose_rows_cuda>(stream, runtime::elementwise_cost(bytes), shape, places,
                                               chosen_targets, targets);
}

void gather_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                 const std::int32_t* places, std::size_t row_bytes) {
  check(shape);
  on_device<gather_rows_cpu, gather_rows_cuda>(stream, cost_of_rows(shape, row_bytes), shape, to, from, places,
                                               row_bytes);
}

void scatter_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                  const std::int32_t* places, std::size_t row_bytes) {
  check(shape);
  runtime::fill_zero(stream, to, shape.all() * row_bytes);
  on_device<scatter_rows_cpu, scatter_rows_cuda>(stream, cost_of_rows(shape, row_bytes), shape, to, from, places,
                                                 row_bytes);
}

}  // namespace ranvier::models
