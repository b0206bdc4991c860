// Checks and launches of adamw.hpp and momentum.hpp; on the host one loop over all elements, with a rule for a few of
// them.
#include "runtime/kernels/state_update.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise_cpu.hpp"
#include "runtime/kernels/int8_block.hpp"
#include "runtime/kernels/momentum.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Elements per conversion to floats. Smaller than in other kernels: with long chunks, the memory streams of a
/// half-precision gradient and working copy pause too long between bursts. Chunks of moments in int8 are their blocks.
constexpr std::size_t update_elements = 256;
static_assert(update_elements <= cpu::RoundingBits::max_elements && update_elements == int8_block_elements);

/// A rule of state_update.hpp.
using ElementsRule =
    std::function<void(float* weights, float* m, float* v, const float* gradient, std::size_t n, bool decays)>;

/// Elements that are contiguous in all arrays, all with or all without weight decay.
struct Stretch {
  std::size_t weights = 0, moments = 0, gradient = 0, working = 0;  ///< offsets of the first element
  std::size_t position = 0;                                         ///< its position
  std::size_t elements = 0;
  bool decays = false;
  std::size_t chunk = 0;   ///< number of its first chunk: the previous stretch's last one if in the same block
  std::size_t behind = 0;  ///< offset of the first element in this chunk
};

/// Stretches of all elements of `runs` inside segments, in ascending order.
std::vector<Stretch> stretches_of(const UpdateRuns& runs, const std::vector<DecaySegment>& segments) {
  std::vector<Stretch> stretches;
  auto segment = segments.begin();
  for (std::size_t x = 0; x < runs.elements && segment != segments.end();) {
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

/// Numbers the chunks of all stretches, and returns their number. A block of moments is one chunk.
std::size_t number_chunks(std::vector<Stretch>& stretches, bool blocks) {
  std::size_t chunks = 0, last_block = std::numeric_limits<std::size_t>::max();
  for (Stretch& stretch : stretches) {
    const bool continues = blocks && stretch.moments / update_elements == last_block;
    stretch.chunk = continues ? chunks - 1 : chunks;
    stretch.behind = blocks ? stretch.moments % update_elements : 0;
    chunks = stretch.chunk + ceil_divide(stretch.behind + stretch.elements, update_elements);
    last_block = (stretch.moments + stretch.elements - 1) / update_elements;
  }
  return chunks;
}

/// A chunk of a state array as floats: the array itself in fp32, a copy in bf16, scratch memory if the array is null. A
/// block of int8 is rounded when another one is loaded.
class StateChunk {
 public:
  StateChunk(void* array, DType dtype) : array_(array), dtype_(dtype) {}
  ~StateChunk() {
    if (is_in_blocks(dtype_)) close();
  }
  StateChunk(const StateChunk&) = delete;
  StateChunk& operator=(const StateChunk&) = delete;

  [[nodiscard]] bool in_bf16() const { return array_ != nullptr && dtype_ == DType::bf16; }
  /// Loads n elements starting at `at`, which are in one block.
  float* load(std::size_t at, std::size_t n) {
    if (array_ == nullptr) return copy_.data();
    if (dtype_ == DType::f32) return static_cast<float*>(array_) + at;
    if (dtype_ == DType::bf16)
      return cpu::to_floats(copy_.data(), static_cast<Bf16*>(array_) + at, n), copy_.data();
    if (at / int8_block_elements != block_) {
      close();
      block_ = at / int8_block_elements;
      floats_of_blocks(copy_.data(), static_cast<Int8Block*>(array_) + block_, dtype_, int8_block_elements);
    }
    return copy_.data() + at % int8_block_elements;
  }
  /// Rounds the chunk in bf16, if it was loaded from there.
  void store(std::size_t at, std::size_t n, const std::uint16_t* random) {
    if (!in_bf16()) return;
    cpu::round_stochastically(copy_.data(), random, n);
    cpu::from_floats(static_cast<Bf16*>(array_) + at, copy_.data(), n);
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  void close() {
    if (block_ != none)
      blocks_of_floats(static_cast<Int8Block*>(array_) + block_, copy_.data(), dtype_, int8_block_elements);
  }

  void* array_;
  DType dtype_;
  std::size_t block_ = none;
  alignas(64) std::array<float, update_elements> copy_;
};

/// Updates elements in chunks that stay in the L1 cache between the conversions of inputs, the rule and the rounding of
/// results. On one thread.
class ChunkUpdate {
 public:
  ChunkUpdate(const UpdateArrays& arrays, const UpdateOptions& options, const ElementsRule& rule)
      : arrays_(arrays),
        options_(options),
        rule_(rule),
        weights_(arrays.weights, arrays.weights_dtype),
        m_(arrays.m, arrays.m_dtype),
        v_(arrays.v, arrays.v_dtype) {}

  /// Elements [from, to) of the stretch, which are in one chunk.
  void operator()(const Stretch& stretch, std::size_t from, std::size_t to) {
    const std::size_t n = to - from, weight_at = stretch.weights + from, moment_at = stretch.moments + from;
    float* const w = weights_.load(weight_at, n);
    rule_(w, m_.load(moment_at, n), v_.load(moment_at, n), gradient(stretch.gradient + from, n), n, stretch.decays);
    if (weights_.in_bf16() || m_.in_bf16() || v_.in_bf16()) {
      cpu::RoundingBits random;
      cpu::draw(random, options_.rounding, static_cast<std::uint32_t>(options_.step), stretch.position + from, n);
      weights_.store(weight_at, n, random.weights());
      m_.store(moment_at, n, random.m());
      v_.store(moment_at, n, random.v());
    }
    if (arrays_.working == nullptr) return;
    with_float_type(arrays_.working_dtype, [&]<typename T>(T) {
      cpu::from_floats(static_cast<T*>(arrays_.working) + stretch.working + from, w, n);
    });
  }

 private:
  const float* gradient(std::size_t at, std::size_t n) {
    return with_float_type(arrays_.gradient_dtype, [&]<typename T>(T) -> const float* {
      const auto* const array = static_cast<const T*>(arrays_.gradient) + at;
      if constexpr (std::is_same_v<T, float>) return array;
      cpu::to_floats(gradient_.data(), array, n);
      return gradient_.data();
    });
  }

  const UpdateArrays& arrays_;
  const UpdateOptions& options_;
  const ElementsRule& rule_;
  StateChunk weights_, m_, v_;
  alignas(64) std::array<float, update_elements> gradient_;
};

/// Cost: states are read and written, the gradient is read, the working copy written. Drawing random numbers for states
/// in bf16 takes longer than moving them.
WorkCost cost_of(const UpdateArrays& arrays, std::size_t elements) {
  const auto bytes = [&](const void* array, DType dtype, std::size_t times) {
    return array == nullptr ? 0 : times * bytes_of(dtype, elements);
  };
  const auto draws = [](const void* array, DType dtype) { return array != nullptr && dtype == DType::bf16; };
  WorkCost cost =
      memory_cost(in_blocks(arrays) ? WorkKind::optimizer_int8 : WorkKind::optimizer, arrays.gradient_dtype,
                  bytes(arrays.weights, arrays.weights_dtype, 2) + bytes(arrays.m, arrays.m_dtype, 2) +
                      bytes(arrays.v, arrays.v_dtype, 2) + bytes_of(arrays.gradient_dtype, elements) +
                      bytes(arrays.working, arrays.working_dtype, 1));
  if (draws(arrays.weights, arrays.weights_dtype) || draws(arrays.m, arrays.m_dtype) ||
      draws(arrays.v, arrays.v_dtype))
    cost.flops = static_cast<double>(elements);
  return cost;
}

void check_blocks(const UpdateRuns& runs, const std::vector<DecaySegment>& segments) {
  for (const StridedLayout& array : {runs.positions, runs.weights, runs.moments, runs.gradient, runs.working}) {
    expect(array.contiguous() || array.run % int8_block_elements == 0,
           "moments in int8 lie in runs of {} elements, not of complete blocks of {}", array.run,
           int8_block_elements);
  }
  expect(runs.moments.contiguous() || runs.moments.stride % int8_block_elements == 0,
         "runs of moments in int8 start every {} elements, not with blocks of {}", runs.moments.stride,
         int8_block_elements);
  std::vector<DecaySegment> taken;
  for (const DecaySegment& segment : segments)
    if (has_elements(runs.positions, segment)) taken.push_back(segment);
  for (std::size_t i = max_launch_segments; i < taken.size(); ++i) {
    const std::size_t last = elements_before(runs.positions, taken[i - max_launch_segments].end) - 1,
                      first = elements_before(runs.positions, taken[i].begin);
    expect(last / int8_block_elements < first / int8_block_elements,
           "a block of moments in int8 has more than {} segments, at position {}", max_launch_segments,
           taken[i].begin);
  }
}

/// Checks the arguments of a kernel of adamw.hpp or momentum.hpp; throws ErrorCode::internal. Whether there is an
/// element to update.
bool has_work(const UpdateArrays& arrays, const std::vector<DecaySegment>& segments, const UpdateOptions& options) {
  const UpdateRuns& runs = arrays.runs;
  expect(options.step >= 1, "an optimizer's steps count from 1, not {}", options.step);
  std::size_t last_end = 0;
  for (const DecaySegment& segment : segments) {
    expect(segment.begin >= last_end && segment.end >= segment.begin,
           "an optimizer's segment {}…{} follows one that ends at {}", segment.begin, segment.end, last_end);
    last_end = segment.end;
  }
  for (const StridedLayout& array : {runs.positions, runs.weights, runs.moments, runs.gradient, runs.working}) {
    expect(array.first == 0 && (array.contiguous() || array.run == runs.positions.run),
           "an optimizer's arrays lie in runs of {} and of {} elements", runs.positions.run, array.run);
  }
  const auto check = [](const void* array, std::string_view name, DType dtype, DType other) {
    expect(array == nullptr || dtype == DType::f32 || dtype == DType::bf16 || dtype == other,
           "the type of an optimizer's {} is {}, not fp32, bf16 or {}", name, to_string(dtype), to_string(other));
  };
  expect(arrays.weights_dtype == DType::f32 || arrays.weights_dtype == DType::bf16,
         "the type of an optimizer's weights is {}, not fp32 or bf16", to_string(arrays.weights_dtype));
  check(arrays.m, "first moments", arrays.m_dtype, DType::i8);
  check(arrays.v, "second moments", arrays.v_dtype, DType::u8);
  if (in_blocks(arrays)) check_blocks(runs, segments);
  return last_end != 0 && runs.elements != 0;
}

/// Queues the rule on the host for all elements in segments. Any thread may run it.
void update_on_host(StreamView stream, const UpdateArrays& arrays, const std::vector<DecaySegment>& segments,
                    const UpdateOptions& options, ElementsRule rule) {
  std::vector<Stretch> stretches = stretches_of(arrays.runs, segments);
  if (stretches.empty()) return;
  std::size_t elements = 0;
  for (const Stretch& stretch : stretches) elements += stretch.elements;
  const std::size_t chunks = number_chunks(stretches, in_blocks(arrays));
  stream.launch(
      cost_of(arrays, elements), [=, stretches = std::move(stretches), rule = std::move(rule)](ComputePool& pool) {
        pool.run([&](int thread, int threads) {
          // Threads divide the chunks, not the range, since segments may exclude most of it.
          const Share share = share_of(chunks, thread, threads);
          ChunkUpdate update(arrays, options, rule);
          for (const Stretch& stretch : stretches) {
            const std::size_t end = stretch.behind + stretch.elements;
            const std::size_t last = std::min(share.end, stretch.chunk + ceil_divide(end, update_elements));
            for (std::size_t chunk = std::max(share.begin, stretch.chunk); chunk < last; ++chunk) {
              const std::size_t at = (chunk - stretch.chunk) * update_elements;
              update(stretch, std::max(at, stretch.behind) - stretch.behind,
                     std::min(at + update_elements, end) - stretch.behind);
            }
          }
        });
      });
}

template <typename Rule>
void launch_rule(StreamView stream, const UpdateArrays& arrays, const std::vector<DecaySegment>& segments,
                 const UpdateOptions& options, const Rule& rule) {
  if (!has_work(arrays, segments, options)) return;
  if (ran_on_gpu<cuda::update_states<Rule>>(stream, arrays, segments, options, rule)) return;
  update_on_host(stream, arrays, segments, options, rule);
}

void refuse_average(const UpdateOptions& options) {
  expect(options.average == 0, "Muon computes no moving average, but its coefficient is {}; use sgd()",
         options.average);
}

}  // namespace

void adamw(StreamView stream, const UpdateArrays& arrays, const std::vector<DecaySegment>& segments,
           const UpdateOptions& options) {
  if (options.average != 0) return sgd(stream, arrays, segments, options);
  launch_rule(stream, arrays, segments, options, AdamWRule(options));
}

void sgd(StreamView stream, const UpdateArrays& all, const std::vector<DecaySegment>& segments,
         const UpdateOptions& options) {
  UpdateArrays arrays = all;
  arrays.v = nullptr;
  if (options.average != 0) arrays.m = nullptr;
  launch_rule(stream, arrays, segments, options, SgdRule{MomentumRule(options), arrays.m != nullptr});
}

void muon_momentum(StreamView stream, const UpdateArrays& all, float* update,
                   const std::vector<DecaySegment>& segments, const UpdateOptions& options) {
  refuse_average(options);
  expect(all.m != nullptr, "Muon has no momentum array");
  // The rule's result is stored like a working copy.
  UpdateArrays arrays = all;
  arrays.weights = arrays.v = nullptr;
  arrays.working = update;
  arrays.working_dtype = DType::f32;
  arrays.runs.weights = arrays.runs.working = arrays.runs.positions;
  launch_rule(stream, arrays, segments, options, MuonRule{MomentumRule(options)});
}

void muon_apply(StreamView stream, const UpdateArrays& all, const float* update,
                const std::vector<DecaySegment>& segments, const UpdateOptions& all_options) {
  refuse_average(all_options);
  UpdateArrays arrays = all;
  arrays.m = nullptr;
  arrays.gradient = update;
  arrays.gradient_dtype = DType::f32;
  arrays.runs.gradient = arrays.runs.moments = arrays.runs.positions;
  UpdateOptions options = all_options;
  options.gradient_scale = 1;
  sgd(stream, arrays, segments, options);
}

}  // namespace ranvier::runtime
