#include "runtime/kernels/adamw_cuda.hpp"

#include "runtime/kernels/packs_cuda.cuh"

#include <array>

namespace ranvier::runtime {
namespace {

constexpr int width = 4;  // elements of a pack: 16 bytes of the states
constexpr int most_segments = 64;
constexpr int threads = 256;

/// Segments cut into the packs that they touch; it travels in the launch itself, so nothing is allocated or copied.
struct Packs {
  int segments = 0;
  std::size_t total = 0;                      ///< packs of all segments
  std::size_t first[most_segments];           ///< number of the first pack of each, counted over all segments
  std::size_t begin[most_segments];           ///< elements
  std::size_t end[most_segments];
  float kept[most_segments];
};

/// One element. Its roundings are those of the host's code on processors that multiply and add in one go.
__device__ void step(float& weight, float& m, float& v, float gradient, float kept, const cpu::AdamWConstants& c) {
  const float g = __fmul_rn(gradient, c.gradient_scale);
  m = __fmaf_rn(m, c.beta1, __fmul_rn(c.one_minus_beta1, g));
  v = __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float root = __fmaf_rn(__fsqrt_rn(v), c.root_scale, c.epsilon);
  weight = __fmaf_rn(weight, kept, -__fdiv_rn(__fmul_rn(c.step_size, m), root));
}

template <int N, typename Gradient, typename Working>
__device__ void apply(const AdamWArrays& arrays, std::size_t at, float kept, const cpu::AdamWConstants& constants) {
  float weights[N], m[N], v[N], gradient[N];
  cuda::load(weights, arrays.weights + at);
  cuda::load(m, arrays.m + at);
  cuda::load(v, arrays.v + at);
  cuda::load(gradient, static_cast<const Gradient*>(arrays.gradient) + at);
  for (int i = 0; i < N; ++i) step(weights[i], m[i], v[i], gradient[i], kept, constants);
  cuda::store(arrays.weights + at, weights);
  cuda::store(arrays.m + at, m);
  cuda::store(arrays.v + at, v);
  if (arrays.working != nullptr) cuda::store(static_cast<Working*>(arrays.working) + at, weights);
}

template <typename Gradient, typename Working>
__global__ void __launch_bounds__(threads)
    step_packs(const AdamWArrays arrays, const __grid_constant__ Packs packs, const cpu::AdamWConstants constants,
               bool packed) {
  const std::size_t stride = gridDim.x * std::size_t{threads};
  int segment = 0;  // packs of one thread come in ascending order
  for (std::size_t pack = blockIdx.x * std::size_t{threads} + threadIdx.x; pack < packs.total; pack += stride) {
    while (segment + 1 < packs.segments && packs.first[segment + 1] <= pack) ++segment;
    const std::size_t begin = packs.begin[segment], end = packs.end[segment];
    const std::size_t at = begin / width * width + (pack - packs.first[segment]) * width;
    if (packed && at >= begin && at + width <= end) {
      apply<width, Gradient, Working>(arrays, at, packs.kept[segment], constants);
      continue;
    }
    for (std::size_t i = at; i < at + width; ++i) {
      if (i >= begin && i < end) apply<1, Gradient, Working>(arrays, i, packs.kept[segment], constants);
    }
  }
}

}  // namespace

void adamw_cuda(StreamView stream, const AdamWArrays& arrays, std::span<const DecaySegment> segments,
                const cpu::AdamWConstants& constants) {
  constexpr std::size_t blocks_per_multiprocessor = 32;
  const cudaStream_t queue = cuda::native(stream);
  const auto most_blocks =
      static_cast<std::size_t>(cuda::properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  const bool packed = cuda::aligned(arrays.weights) && cuda::aligned(arrays.m) && cuda::aligned(arrays.v) &&
                      cuda::aligned(arrays.gradient) && cuda::aligned(arrays.working);
  for (std::size_t from = 0; from < segments.size();) {
    Packs packs;
    for (; from < segments.size() && packs.segments < most_segments; ++from) {
      const DecaySegment& segment = segments[from];
      if (segment.begin == segment.end) continue;
      const auto index = static_cast<std::size_t>(packs.segments++);
      packs.first[index] = packs.total;
      packs.begin[index] = segment.begin;
      packs.end[index] = segment.end;
      packs.kept[index] = segment.decays ? constants.kept : 1.0f;
      packs.total += (segment.end + width - 1) / width - segment.begin / width;
    }
    if (packs.total == 0) continue;
    const std::size_t blocks = std::min((packs.total + threads - 1) / threads, most_blocks);
    cuda::with_type(arrays.gradient_dtype, [&](auto gradient_type) {
      cuda::with_type(arrays.working_dtype, [&](auto working_type) {
        cuda::launch("adamw", queue, {static_cast<unsigned>(blocks), threads},
                     step_packs<decltype(gradient_type), decltype(working_type)>, arrays, packs, constants, packed);
      });
    });
  }
}

}  // namespace ranvier::runtime
