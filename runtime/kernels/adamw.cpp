#include "runtime/kernels/adamw.hpp"

#include "runtime/compute_pool.hpp"
#include "runtime/cuda_build.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/adamw_cpu.hpp"
#include "runtime/kernels/adamw_cuda.hpp"
#include "runtime/kernels/elementwise_cpu.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Fewer than elsewhere: in long chunks the streams of a half-precision gradient and copy pause for too long between
/// their bursts.
constexpr std::size_t chunk_elements = 256;

/// Elements [begin, end) of the arrays, all of which decay or none. Chunks stay in the first-level cache
/// between the conversion of the gradient, the step and the rounding of the working copy.
template <typename Gradient, typename Working>
void step(const AdamWArrays& arrays, const Gradient* gradient, Working* working, std::size_t begin, std::size_t end,
          float kept, const cpu::AdamWConstants& constants) {
  for (std::size_t at = begin; at < end; at += chunk_elements) {
    const std::size_t n = std::min(chunk_elements, end - at);
    alignas(64) std::array<float, std::is_same_v<Gradient, float> ? 1 : chunk_elements> converted;
    const float* g = nullptr;
    if constexpr (std::is_same_v<Gradient, float>) {
      g = gradient + at;
    } else {
      cpu::to_floats(converted.data(), gradient + at, n);
      g = converted.data();
    }
    cpu::adamw(arrays.weights + at, arrays.m + at, arrays.v + at, g, n, kept, constants);
    if (working != nullptr) cpu::from_floats(working + at, arrays.weights + at, n);
  }
}

}  // namespace

void adamw(StreamView stream, const AdamWArrays& arrays, std::vector<DecaySegment> segments,
           const AdamWOptions& options) {
  expect(options.step >= 1, "AdamW's steps count from 1, not {}", options.step);
  std::size_t elements = 0;
  std::size_t last_end = 0;
  for (const DecaySegment& segment : segments) {
    expect(segment.begin >= last_end && segment.end >= segment.begin,
           "AdamW's segment {}…{} follows one that ends at {}", segment.begin, segment.end, last_end);
    elements += segment.end - segment.begin;
    last_end = segment.end;
  }
  if (elements == 0) return;

  const cpu::AdamWConstants constants(options);
  if constexpr (with_cuda) {
    if (stream.device().kind() == DeviceKind::cuda) return adamw_cuda(stream, arrays, segments, constants);
  }
  stream.launch([=, segments = std::move(segments)](ComputePool& pool) {
    with_float_type(arrays.gradient_dtype, [&]<typename Gradient>(Gradient) {
      with_float_type(arrays.working_dtype, [&]<typename Working>(Working) {
        pool.run([&](int thread, int threads) {
          // Threads share the elements, not the range: segments may leave most of it out.
          const Share share = share_of(elements, thread, threads, chunk_elements);
          std::size_t passed = 0;
          for (const DecaySegment& segment : segments) {
            const std::size_t length = segment.end - segment.begin;
            const std::size_t from = std::max(share.begin, passed), to = std::min(share.end, passed + length);
            if (from < to)
              step(arrays, static_cast<const Gradient*>(arrays.gradient), static_cast<Working*>(arrays.working),
                   segment.begin + (from - passed), segment.begin + (to - passed),
                   segment.decays ? constants.kept : 1.0f, constants);
            passed += length;
          }
        });
      });
    });
  });
}

}  // namespace ranvier::runtime
