#include "models/ops/target_rows.hpp"

#include "models/ops/bad_token.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dispatch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <cstring>
#include <limits>

namespace ranvier::models {
namespace {

void check(const TargetRows& shape) {
  expect(shape.chosen <= shape.positions &&
             shape.positions <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
         "{} of {} positions of a sample", shape.chosen, shape.positions);
}

/// Copies each row of [B, F] from its place in [B, T], or to it.
void copy_rows(runtime::StreamView stream, bool scatters, const TargetRows& shape, void* to, const void* from,
               const std::int32_t* places, std::size_t row_bytes) {
  const std::size_t bytes = shape.rows() * (2 * row_bytes + sizeof(std::int32_t));
  stream.launch(runtime::elementwise_cost(bytes), [=](runtime::ComputePool& pool) {
    for_each_row(pool, shape.rows(), [&](std::size_t row) {
      const std::size_t place = row / shape.chosen * shape.positions + static_cast<std::size_t>(places[row]);
      std::memcpy(static_cast<std::byte*>(to) + (scatters ? place : row) * row_bytes,
                  static_cast<const std::byte*>(from) + (scatters ? row : place) * row_bytes, row_bytes);
    });
  });
}

}  // namespace

void choose_rows(runtime::StreamView stream, const TargetRows& shape, std::int32_t* places,
                 std::int32_t* chosen_targets, const std::int32_t* targets) {
  check(shape);
  const std::size_t bytes = (shape.all() + 2 * shape.rows()) * sizeof(std::int32_t);
  if (ran_on_gpu<choose_rows_cuda>(stream, shape, places, chosen_targets, targets)) return;
  stream.launch(runtime::elementwise_cost(bytes), [=](runtime::ComputePool& pool) {
    for_each_row(pool, shape.samples, [&](std::size_t b) {
      const std::int32_t* const of_sample = targets + b * shape.positions;
      std::size_t next = b * shape.chosen, count = 0;
      for (const bool with_target : {true, false}) {
        for (std::size_t t = 0; t < shape.positions; ++t) {
          if ((of_sample[t] != no_target) != with_target) continue;
          if (count++ >= shape.chosen) continue;
          places[next] = static_cast<std::int32_t>(t);
          chosen_targets[next++] = of_sample[t];
        }
        if (with_target && count > shape.chosen) fail_many_targets(count, b, shape.chosen);
      }
    });
  });
}

void gather_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                 const std::int32_t* places, std::size_t row_bytes) {
  check(shape);
  if (ran_on_gpu<gather_rows_cuda>(stream, shape, to, from, places, row_bytes)) return;
  copy_rows(stream, false, shape, to, from, places, row_bytes);
}

void scatter_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                  const std::int32_t* places, std::size_t row_bytes) {
  check(shape);
  runtime::fill_zero(stream, to, shape.all() * row_bytes);
  if (ran_on_gpu<scatter_rows_cuda>(stream, shape, to, from, places, row_bytes)) return;
  copy_rows(stream, true, shape, to, from, places, row_bytes);
}

}  // namespace ranvier::models
