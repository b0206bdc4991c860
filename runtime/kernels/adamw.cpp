#include "runtime/kernels/adamw.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/adamw_cpu.hpp"
#include "runtime/kernels/adamw_cuda.hpp"
#include "runtime/kernels/elementwise_cpu.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Smaller than in other kernels: with long chunks, the memory streams of a half-precision gradient and working copy
/// pause too long between bursts.
constexpr std::size_t chunk_elements = 256;

/// Elements that are contiguous in all arrays, all with or all without weight decay.
struct Stretch {
  std::size_t weights = 0, moments = 0, gradient = 0, working = 0;  ///< offsets of the first element
  std::size_t elements = 0;
  bool decays = false;

  [[nodiscard]] Stretch part(std::size_t begin, std::size_t end) const {
    return {weights + begin, moments + begin, gradient + begin, working + begin, end - begin, decays};
  }
};

/// Stretches of all elements of `runs` inside segments, in ascending order.
std::vector<Stretch> stretches_of(const AdamWRuns& runs, const std::vector<DecaySegment>& segments) {
  std::vector<Stretch> stretches;
  auto segment = segments.begin();
  for (std::size_t x = 0; x < runs.elements;) {
    const std::size_t together =
        std::min({runs.elements - x, runs.positions.together(x), runs.weights.together(x), runs.moments.together(x),
                  runs.gradient.together(x), runs.working.together(x)});
    const std::size_t begin = runs.positions.at(x), end = begin + together;
    for (; segment != segments.end() && segment->begin < end; ++segment) {
      const std::size_t from = std::max(segment->begin, begin), to = std::min(segment->end, end);
      if (from < to) {
        const std::size_t at = x + (from - begin);
        stretches.push_back({runs.weights.at(at), runs.moments.at(at), runs.gradient.at(at), runs.working.at(at),
                             to - from, segment->decays});
      }
      if (segment->end > end) break;  // it continues in the next run
    }
    x += together;
  }
  return stretches;
}

/// Updates a stretch in chunks that stay in the L1 cache between the conversion of the gradient, the step and the
/// rounding of the working copy.
template <typename Gradient, typename Working>
void step(const AdamWArrays& arrays, const Stretch& stretch, const cpu::AdamWConstants& constants) {
  const auto* gradient = static_cast<const Gradient*>(arrays.gradient) + stretch.gradient;
  auto* working = static_cast<Working*>(arrays.working);
  if (working != nullptr) working += stretch.working;
  float* weights = arrays.weights + stretch.weights;
  float* m = arrays.m + stretch.moments;
  float* v = arrays.v + stretch.moments;
  const float kept = constants.kept_of(stretch.decays);
  for (std::size_t at = 0; at < stretch.elements; at += chunk_elements) {
    const std::size_t n = std::min(chunk_elements, stretch.elements - at);
    alignas(64) std::array<float, std::is_same_v<Gradient, float> ? 1 : chunk_elements> converted;
    const float* g = nullptr;
    if constexpr (std::is_same_v<Gradient, float>) {
      g = gradient + at;
    } else {
      cpu::to_floats(converted.data(), gradient + at, n);
      g = converted.data();
    }
    cpu::adamw(weights + at, m + at, v + at, g, n, kept, constants);
    if (working != nullptr) cpu::from_floats(working + at, weights + at, n);
  }
}

/// Cost: weights, m and v are read and written, the gradient is read, the working copy written.
WorkCost cost_of(const AdamWArrays& arrays, std::size_t elements) {
  const std::size_t working = arrays.working == nullptr ? 0 : size_of(arrays.working_dtype);
  return memory_cost(WorkKind::optimizer, arrays.gradient_dtype,
                     elements * (6 * sizeof(float) + size_of(arrays.gradient_dtype) + working));
}

}  // namespace

void adamw(StreamView stream, const AdamWArrays& arrays, std::vector<DecaySegment> segments,
           const AdamWOptions& options) {
  const std::size_t end = segments.empty() ? 0 : segments.back().end;
  adamw(stream, arrays, {.elements = end}, std::move(segments), options);
}

void adamw(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs, std::vector<DecaySegment> segments,
           const AdamWOptions& options) {
  expect(options.step >= 1, "AdamW's steps count from 1, not {}", options.step);
  std::size_t last_end = 0;
  for (const DecaySegment& segment : segments) {
    expect(segment.begin >= last_end && segment.end >= segment.begin,
           "AdamW's segment {}…{} follows one that ends at {}", segment.begin, segment.end, last_end);
    last_end = segment.end;
  }
  for (const StridedLayout& array : {runs.positions, runs.weights, runs.moments, runs.gradient, runs.working}) {
    expect(array.first == 0 && (array.contiguous() || array.run == runs.positions.run),
           "AdamW's arrays lie in runs of {} and of {} elements", runs.positions.run, array.run);
  }
  if (last_end == 0 || runs.elements == 0) return;

  const cpu::AdamWConstants constants(options);
  if (ran_on_gpu<adamw_cuda>(stream, arrays, runs, segments, constants)) return;
  std::vector<Stretch> stretches = stretches_of(runs, segments);
  std::size_t elements = 0;
  for (const Stretch& stretch : stretches) elements += stretch.elements;
  if (elements == 0) return;
  stream.launch(cost_of(arrays, elements), [=, stretches = std::move(stretches)](ComputePool& pool) {
    with_float_type(arrays.gradient_dtype, [&]<typename Gradient>(Gradient) {
      with_float_type(arrays.working_dtype, [&]<typename Working>(Working) {
        pool.run([&](int thread, int threads) {
          // Threads divide the elements, not the range, since segments may exclude most of it.
          const Share share = share_of(elements, thread, threads, chunk_elements);
          std::size_t passed = 0;
          for (const Stretch& stretch : stretches) {
            const std::size_t from = std::max(share.begin, passed);
            const std::size_t to = std::min(share.end, passed + stretch.elements);
            if (from < to) step<Gradient, Working>(arrays, stretch.part(from - passed, to - passed), constants);
            passed += stretch.elements;
          }
        });
      });
    });
  });
}

}  // namespace ranvier::runtime
