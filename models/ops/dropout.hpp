// Counter-based dropout: whether an element is kept depends on seed, step, site, global sample and its index in the
// sample, never on the grid. Kept elements are multiplied by 1/(1 - rate).
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/philox.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct Dropout {
  float rate = 0;          ///< 0: everything is kept, the key is not used
  runtime::PhiloxKey key;  ///< from seed and purpose, mixed with step and site
  std::int64_t first_sample = 0;

  [[nodiscard]] float kept_scale() const { return 1.0f / (1.0f - rate); }
};

/// `site`: number of the place in the model that drops; each place has its own.
[[nodiscard]] Dropout make_dropout(float rate, std::uint64_t seed, std::int64_t step, std::uint32_t site,
                                   std::int64_t first_sample);

/// The bits of elements 4·quad … 4·quad+3 of sample first_sample + b; an element is kept if
/// uniform(bits) >= rate.
[[nodiscard]] inline runtime::PhiloxCounter dropout_bits(const Dropout& dropout, std::int64_t b,
                                                         std::uint64_t quad) {
  const auto sample = static_cast<std::uint64_t>(dropout.first_sample + b);
  return runtime::philox(dropout.key,
                         {static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32),
                          static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)});
}

/// x[b, i] = kept ? x[b, i] / (1 - rate) : 0, in place. The same for values in forward and gradients in backward.
void dropout(runtime::StreamView stream, void* x, runtime::DType dtype, int samples,
             std::size_t elements_per_sample, const Dropout& options);

// GPU kernels.
decltype(dropout) dropout_cuda;

}  // namespace ranvier::models
