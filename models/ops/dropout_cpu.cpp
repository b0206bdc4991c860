#include "models/ops/dropout.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_philox.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {
namespace {

/// Elements begin … end-1 of one sample; begin is a multiple of 4.
template <typename T>
void drop(T* x, std::size_t begin, std::size_t end, const Dropout& options, std::uint64_t sample) {
  const simd::Floats scale = simd::broadcast(options.kept_scale());
  for (std::size_t i = begin; i < end; i += 4 * simd::lanes) {
    const auto bits = simd::in_counter_order(simd::philox(options.key, i / 4, static_cast<std::uint32_t>(sample),
                                                          static_cast<std::uint32_t>(sample >> 32)));
    for (std::size_t part = 0; part < 4; ++part) {
      const std::size_t first = i + part * simd::lanes;
      if (first >= end) break;
      const std::size_t count = end - first;
      const simd::Floats value = simd::load(x + first, count) * scale;
      simd::store(x + first, simd::uniform(bits[part]) >= options.rate ? value : simd::Floats{}, count);
    }
  }
}

}  // namespace

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
  if (ran_on_gpu<dropout_cuda>(stream, x, dtype, samples, elements_per_sample, options)) return;
  launch_typed(stream, dtype, memory_cost(runtime::WorkKind::dropout, dtype, bytes),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 auto* const values = static_cast<T*>(x);
                 pool.run([&](int thread, int threads) {
                   const auto share = runtime::share_of(elements_per_sample, thread, threads, 64);
                   for (int b = 0; b < samples; ++b) {
                     drop(values + static_cast<std::size_t>(b) * elements_per_sample, share.begin, share.end,
                          options, static_cast<std::uint64_t>(options.first_sample + b));
                   }
                 });
               });
}

}  // namespace ranvier::models
