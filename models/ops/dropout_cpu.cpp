#include "models/ops/dropout.hpp"

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

void dropout_cpu(runtime::ComputePool& pool, void* x, runtime::DType dtype, int samples,
                 std::size_t elements_per_sample, const Dropout& options) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto* const values = static_cast<T*>(x);
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(elements_per_sample, thread, threads, 64);
      for (int b = 0; b < samples; ++b) {
        drop(values + static_cast<std::size_t>(b) * elements_per_sample, share.begin, share.end, options,
             static_cast<std::uint64_t>(options.first_sample + b));
      }
    });
  });
}

}  // namespace ranvier::models
