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
static_assert(chunk_elements <= cpu::RoundingBits::max_elements);

/// Elements that are contiguous in all arrays, all with or all without weight decay.
struct Stretch {
  std::size_t weights = 0, moments = 0, gradient = 0, working = 0;  ///< offsets of the first element
  std::size_t position = 0;                                         ///< its position
  std::size_t elements = 0;
  bool decays = false;

  [[nodiscard]] Stretch part(std::size_t begin, std::size_t end) const {
    return {weights + begin, moments + begin, gradient + begin, working + begin, position + begin,
            end - begin,     decays};
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
                             from, to - from, segment->decays});
      }
      if (segment->end > end) break;  // it continues in the next run
    }
    x += together;
  }
  return stretches;
}

/// A chunk of an array as floats: the array itself, or a copy that the caller rounds and stores.
template <typename T>
class Chunk {
 public:
  Chunk(const T* array, std::size_t n) : elements_(n) {
    if constexpr (!std::is_same_v<T, float>) cpu::to_floats(copy_.data(), array, n);
    if constexpr (std::is_same_v<T, float>) array_ = const_cast<float*>(array);
  }
  [[nodiscard]] float* data() {
    if constexpr (std::is_same_v<T, float>)
      return array_;
    else
      return copy_.data();
  }
  void round_to(T* array, const std::uint16_t* random) {
    if constexpr (std::is_same_v<T, Bf16>) {
      cpu::round_stochastically(copy_.data(), random, elements_);
      cpu::from_floats(array, copy_.data(), elements_);
    }
  }

 private:
  std::size_t elements_;
  float* array_ = nullptr;
  alignas(64) std::array<float, std::is_same_v<T, float> ? 1 : chunk_elements> copy_;
};

/// Updates a stretch in chunks that stay in the L1 cache between the conversions of inputs, the step and the rounding
/// of results.
template <typename Weight, typename Moment, typename Gradient, typename Working>
void step(const AdamWArrays& arrays, const Stretch& stretch, const AdamWOptions& options,
          const cpu::AdamWConstants& constants) {
  const auto* gradient = static_cast<const Gradient*>(arrays.gradient) + stretch.gradient;
  auto* working = static_cast<Working*>(arrays.working);
  if (working != nullptr) working += stretch.working;
  auto* weights = static_cast<Weight*>(arrays.weights) + stretch.weights;
  auto* m = static_cast<Moment*>(arrays.m) + stretch.moments;
  auto* v = static_cast<Moment*>(arrays.v) + stretch.moments;
  const float kept = constants.kept_of(stretch.decays);
  for (std::size_t at = 0; at < stretch.elements; at += chunk_elements) {
    const std::size_t n = std::min(chunk_elements, stretch.elements - at);
    Chunk<Gradient> g(gradient + at, n);
    Chunk<Weight> w(weights + at, n);
    Chunk<Moment> first(m + at, n), second(v + at, n);
    cpu::adamw(w.data(), first.data(), second.data(), g.data(), n, kept, constants);
    if constexpr (!std::is_same_v<Weight, float> || !std::is_same_v<Moment, float>) {
      cpu::RoundingBits random;
      cpu::draw(random, options.rounding, static_cast<std::uint32_t>(options.step), stretch.position + at, n);
      w.round_to(weights + at, random.weights());
      first.round_to(m + at, random.m());
      second.round_to(v + at, random.v());
    }
    if (working != nullptr) cpu::from_floats(working + at, w.data(), n);
  }
}

/// Calls `f` with a value of the C++ type of a state array.
template <typename F>
void with_state_type(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(Bf16{});
  f(float{});
}

/// Cost: weights, m and v are read and written, the gradient is read, the working copy written.
WorkCost cost_of(const AdamWArrays& arrays, std::size_t elements) {
  const std::size_t working = arrays.working == nullptr ? 0 : size_of(arrays.working_dtype);
  return memory_cost(WorkKind::optimizer, arrays.gradient_dtype,
                     elements * (2 * size_of(arrays.weights_dtype) + 4 * size_of(arrays.moments_dtype) +
                                 size_of(arrays.gradient_dtype) + working));
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
  for (const DType dtype : {arrays.weights_dtype, arrays.moments_dtype})
    expect(dtype == DType::f32 || dtype == DType::bf16, "AdamW's states are {}, not fp32 or bf16",
           to_string(dtype));
  if (last_end == 0 || runs.elements == 0) return;

  const cpu::AdamWConstants constants(options);
  if (ran_on_gpu<adamw_cuda>(stream, arrays, runs, segments, options, constants)) return;
  std::vector<Stretch> stretches = stretches_of(runs, segments);
  std::size_t elements = 0;
  for (const Stretch& stretch : stretches) elements += stretch.elements;
  if (elements == 0) return;
  stream.launch(cost_of(arrays, elements), [=, stretches = std::move(stretches)](ComputePool& pool) {
    const auto run = [&]<typename Weight, typename Moment, typename Gradient, typename Working>(Weight, Moment,
                                                                                                Gradient, Working) {
      pool.run([&](int thread, int threads) {
        // Threads divide the elements, not the range, since segments may exclude most of it.
        const Share share = share_of(elements, thread, threads, chunk_elements);
        std::size_t passed = 0;
        for (const Stretch& stretch : stretches) {
          const std::size_t from = std::max(share.begin, passed);
          const std::size_t to = std::min(share.end, passed + stretch.elements);
          if (from < to)
            step<Weight, Moment, Gradient, Working>(arrays, stretch.part(from - passed, to - passed), options,
                                                    constants);
          passed += stretch.elements;
        }
      });
    };
    with_state_type(arrays.weights_dtype, [&](auto weight) {
      with_state_type(arrays.moments_dtype, [&](auto moment) {
        with_float_type(arrays.gradient_dtype, [&](auto gradient) {
          with_float_type(arrays.working_dtype, [&](auto working) { run(weight, moment, gradient, working); });
        });
      });
    });
  });
}

}  // namespace ranvier::runtime
