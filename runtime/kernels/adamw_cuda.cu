#include "runtime/kernels/adamw_cuda.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/packs_cuda.cuh"
#include "runtime/kernels/philox.cuh"

namespace ranvier::runtime {
namespace {

constexpr int width = 4;  // elements per pack: 16 bytes of fp32 states
constexpr int max_segments = 64;
constexpr int threads = 256;

/// Passed as a launch argument, so nothing is allocated or copied.
struct Segments {
  int count = 0;
  std::size_t begin[max_segments];  ///< positions, ascending
  std::size_t end[max_segments];
  float kept[max_segments];
};

/// Index of the last segment that starts at or before `position`, or 0 if there is none. The segment may not contain
/// `position`.
__device__ int segment_of(const Segments& segments, std::size_t position) {
  int low = 0, high = segments.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (segments.begin[middle] <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__device__ std::size_t place(const StridedLayout& runs, std::size_t x, std::size_t run, std::size_t in_run) {
  return runs.run == runs.stride ? x : run * runs.stride + in_run;
}

/// Updates one element, with the same roundings as the host's code on processors with fused multiply-add.
__device__ void step(float& weight, float& m, float& v, float gradient, float kept, const cpu::AdamWConstants& c) {
  const float g = __fmul_rn(gradient, c.gradient_scale);
  m = __fmaf_rn(m, c.beta1, __fmul_rn(c.one_minus_beta1, g));
  v = __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float root = __fmaf_rn(__fsqrt_rn(v), c.root_scale, c.epsilon);
  weight = __fmaf_rn(weight, kept, -__fdiv_rn(__fmul_rn(c.step_size, m), root));
}

struct Places {
  std::size_t weights, moments, gradient, working;
};

/// Origin of the random numbers, and the step.
struct Rounding {
  RoundingOrigin origin;
  std::uint32_t step;
};

/// Rounds N elements starting at `position` like cpu::draw() and cpu::round_stochastically().
template <int N>
__device__ void round_states(float (&weights)[N], float (&m)[N], float (&v)[N], const AdamWArrays& arrays,
                             const Rounding& rounding, std::size_t position) {
  uint4 words{};  // shared by two elements
  for (int i = 0; i < N; ++i) {
    const std::uint64_t element = rounding.origin.element + position + i, pair = element / 2;
    if (i == 0 || element % 2 == 0)
      words = cuda::philox(rounding.origin.key.low, rounding.origin.key.high,
                           {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
                            rounding.origin.unit, rounding.step});
    const std::uint32_t first = element % 2 == 0 ? words.x : words.z, second = element % 2 == 0 ? words.y : words.w;
    if (arrays.weights_dtype != DType::f32)
      weights[i] = round_to_bf16(weights[i], static_cast<std::uint16_t>(first));
    if (arrays.moments_dtype != DType::f32) {
      m[i] = round_to_bf16(m[i], static_cast<std::uint16_t>(first >> 16));
      v[i] = round_to_bf16(v[i], static_cast<std::uint16_t>(second));
    }
  }
}

template <int N>
__device__ void load_state(float (&to)[N], const void* array, DType dtype, std::size_t at) {
  if (dtype == DType::f32) {
    cuda::load(to, static_cast<const float*>(array) + at);
  } else {
    cuda::load(to, static_cast<const cuda::Bf16*>(array) + at);
  }
}

template <int N>
__device__ void store_state(void* array, DType dtype, std::size_t at, const float (&from)[N]) {
  if (dtype == DType::f32) {
    cuda::store(static_cast<float*>(array) + at, from);
  } else {
    cuda::store(static_cast<cuda::Bf16*>(array) + at, from);
  }
}

template <int N, typename Gradient, typename Working>
__device__ void apply(const AdamWArrays& arrays, const Places& at, float kept, const cpu::AdamWConstants& constants,
                      const Rounding& rounding, std::size_t position) {
  float weights[N], m[N], v[N], gradient[N];
  load_state(weights, arrays.weights, arrays.weights_dtype, at.weights);
  load_state(m, arrays.m, arrays.moments_dtype, at.moments);
  load_state(v, arrays.v, arrays.moments_dtype, at.moments);
  cuda::load(gradient, static_cast<const Gradient*>(arrays.gradient) + at.gradient);
  for (int i = 0; i < N; ++i) step(weights[i], m[i], v[i], gradient[i], kept, constants);
  if (arrays.weights_dtype != DType::f32 || arrays.moments_dtype != DType::f32)
    round_states(weights, m, v, arrays, rounding, position);
  store_state(arrays.weights, arrays.weights_dtype, at.weights, weights);
  store_state(arrays.m, arrays.moments_dtype, at.moments, m);
  store_state(arrays.v, arrays.moments_dtype, at.moments, v);
  if (arrays.working != nullptr) cuda::store(static_cast<Working*>(arrays.working) + at.working, weights);
}

/// Updates the elements [begin, end) in packs; in strided arrays a pack ends with its run.
template <typename Gradient, typename Working>
__global__ void __launch_bounds__(threads)
    step_packs(const AdamWArrays arrays, const AdamWRuns runs, const __grid_constant__ Segments segments,
               const cpu::AdamWConstants constants, const Rounding rounding, std::size_t begin, std::size_t end,
               std::size_t packs_of_run, std::size_t packs, bool packed) {
  const bool flat = runs.positions.run == runs.positions.stride;
  const std::size_t stride = gridDim.x * std::size_t{threads};
  for (std::size_t pack = blockIdx.x * std::size_t{threads} + threadIdx.x; pack < packs; pack += stride) {
    const std::size_t run = flat ? 0 : pack / packs_of_run;
    const std::size_t in_run = (pack - run * packs_of_run) * width + (flat ? begin : 0);
    const std::size_t first = flat ? in_run : run * runs.positions.run + in_run;
    const std::size_t run_end = flat ? end : (run + 1) * runs.positions.run;
    const std::size_t last = run_end < end ? run_end : end;
    const std::size_t position = place(runs.positions, first, run, in_run);
    const auto places = [&](std::size_t i) {
      return Places{
          place(runs.weights, first + i, run, in_run + i), place(runs.moments, first + i, run, in_run + i),
          place(runs.gradient, first + i, run, in_run + i), place(runs.working, first + i, run, in_run + i)};
    };
    int segment = segment_of(segments, position);
    if (packed && first + width <= last && position >= segments.begin[segment] &&
        position + width <= segments.end[segment]) {
      apply<width, Gradient, Working>(arrays, places(0), segments.kept[segment], constants, rounding, position);
      continue;
    }
    for (std::size_t i = 0; i < width && first + i < last; ++i) {
      segment = segment_of(segments, position + i);
      if (position + i >= segments.begin[segment] && position + i < segments.end[segment]) {
        apply<1, Gradient, Working>(arrays, places(i), segments.kept[segment], constants, rounding, position + i);
      }
    }
  }
}

}  // namespace

void adamw_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                std::span<const DecaySegment> segments, const AdamWOptions& options,
                const cpu::AdamWConstants& constants) {
  constexpr std::size_t blocks_per_multiprocessor = 32;
  const cudaStream_t queue = cuda::native(stream);
  const auto max_blocks =
      static_cast<std::size_t>(cuda::properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  const auto fits = [&](const StridedLayout& array) {
    return array.contiguous() || (array.run % width == 0 && array.stride % width == 0);
  };
  const bool flat = runs.positions.contiguous();
  const bool packed = cuda::aligned(arrays.weights) && cuda::aligned(arrays.m) && cuda::aligned(arrays.v) &&
                      cuda::aligned(arrays.gradient) && cuda::aligned(arrays.working) &&
                      (flat || runs.positions.run % width == 0) && fits(runs.weights) && fits(runs.moments) &&
                      fits(runs.gradient) && fits(runs.working);
  for (std::size_t from = 0; from < segments.size();) {
    Segments taken;
    for (; from < segments.size() && taken.count < max_segments; ++from) {
      const DecaySegment& segment = segments[from];
      if (segment.begin == segment.end) continue;
      const auto index = static_cast<std::size_t>(taken.count++);
      taken.begin[index] = segment.begin;
      taken.end[index] = segment.end;
      taken.kept[index] = constants.kept_of(segment.decays);
    }
    if (taken.count == 0) continue;
    // For flat arrays: only the range from the first of these segments to the last one.
    const std::size_t begin = flat ? taken.begin[0] / width * width : 0;
    const std::size_t end = flat ? std::min(runs.elements, taken.end[taken.count - 1]) : runs.elements;
    if (begin >= end) continue;
    const std::size_t of_run = flat ? ceil_divide(end - begin, width) : ceil_divide(runs.positions.run, width);
    const std::size_t packs = flat ? of_run : ceil_divide(end, runs.positions.run) * of_run;
    const std::size_t blocks = std::min(ceil_divide(packs, threads), max_blocks);
    cuda::with_type(arrays.gradient_dtype, [&](auto gradient_type) {
      cuda::with_type(arrays.working_dtype, [&](auto working_type) {
        cuda::launch("adamw", queue, {static_cast<unsigned>(blocks), threads},
                     step_packs<decltype(gradient_type), decltype(working_type)>, arrays, runs, taken, constants,
                     Rounding{options.rounding, static_cast<std::uint32_t>(options.step)}, begin, end, of_run,
                     packs, packed);
      });
    });
  }
}

}  // namespace ranvier::runtime
