#include "models/ops/dropout.hpp"

#include "models/ops/cuda_vector.cuh"
#include "models/ops/philox.cuh"

#include <algorithm>

namespace ranvier::models {
namespace {

constexpr int threads = 256;

/// Elements per thread: two quads of a 2-byte type, so that an access has 16 bytes.
template <typename T>
constexpr int thread_elements = std::max(4, cuda::full_width<T>);

/// Block (x, y) computes a part of samples y, y + gridDim.y, ….
template <bool wide, typename T>
__global__ void __launch_bounds__(threads)
    dropout_kernel(T* x, int samples, std::size_t elements_per_sample, cuda::DropoutRule rule) {
  constexpr int count = thread_elements<T>;
  const std::size_t begin = (std::size_t{blockIdx.x} * threads + threadIdx.x) * count;
  if (begin >= elements_per_sample) return;
  for (int b = static_cast<int>(blockIdx.y); b < samples; b += static_cast<int>(gridDim.y)) {
    std::uint32_t kept = 0;
#pragma unroll
    for (int quad = 0; quad < count / 4; ++quad)
      kept |= cuda::kept_of_quad(rule, b, begin / 4 + quad) << (4 * quad);
    T* const values = x + static_cast<std::size_t>(b) * elements_per_sample + begin;
    if constexpr (wide) {
      float value[count];
      cuda::load(value, values);
#pragma unroll
      for (int i = 0; i < count; ++i) value[i] = (kept >> i & 1) != 0 ? value[i] * rule.scale : 0.0f;
      cuda::store(values, value);
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (begin + i < elements_per_sample) {
          const float value = cuda::to_float(values[i]) * rule.scale;
          values[i] = cuda::from_float<T>((kept >> i & 1) != 0 ? value : 0.0f);
        }
      }
    }
  }
}

}  // namespace

void dropout_cuda(runtime::StreamView stream, void* x, runtime::DType dtype, int samples,
                  std::size_t elements_per_sample, const Dropout& options) {
  if (samples == 0 || elements_per_sample == 0) return;
  const cuda::DropoutRule rule(options);
  cuda::with_type(dtype, [&]<typename T>(T) {
    constexpr int count = thread_elements<T>;
    const dim3 grid(cuda::blocks_of(elements_per_sample, std::size_t{threads} * count),
                    static_cast<unsigned>(std::min(samples, 65535)));
    const auto run =
        elements_per_sample % count == 0 && cuda::aligned(x) ? dropout_kernel<true, T> : dropout_kernel<false, T>;
    cuda::launch("dropout", stream, {grid, threads}, run, x, samples, elements_per_sample, rule);
  });
}

}  // namespace ranvier::models
