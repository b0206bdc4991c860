#include "models/ops/dropout.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

Dropout make_dropout(float rate, std::uint64_t seed, std::int64_t step, std::uint32_t site,
                     std::int64_t first_sample) {
  const auto number = static_cast<std::uint64_t>(step);
  const auto mixed =
      runtime::philox(runtime::philox_key(seed, runtime::RandomPurpose::dropout),
                      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), site, 0});
  return {rate, {mixed[0], mixed[1]}, first_sample};
}

void dropout(runtime::StreamView stream, void* x, runtime::DType dtype, int samples,
             std::size_t elements_per_sample, const Dropout& options) {
  expect_kernel(dtype, "dropout");
  if (options.rate <= 0) return;
  const std::size_t bytes = 2 * bytes_of(static_cast<std::size_t>(samples) * elements_per_sample, dtype);
  on_device<dropout_cpu, dropout_cuda>(stream, memory_cost(runtime::WorkKind::dropout, dtype, bytes), x, dtype,
                                       samples, elements_per_sample, options);
}

}  // namespace ranvier::models
