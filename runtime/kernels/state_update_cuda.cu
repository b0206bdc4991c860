// GPU kernels for adamw.hpp and momentum.hpp. Null arrays are skipped.
#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/int8_tables.hpp"
#include "runtime/kernels/packs_cuda.cuh"
#include "runtime/kernels/philox.cuh"
#include "runtime/kernels/state_update.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::runtime::cuda {
namespace {

// Rules for one element, with the same roundings as the host's code on processors with fused multiply-add.

__device__ inline void apply(const AdamWRule& c, float& weight, float& m, float& v, float gradient, float kept) {
  const float g = __fmul_rn(gradient, c.gradient_scale);
  m = __fmaf_rn(m, c.beta1, __fmul_rn(c.one_minus_beta1, g));
  v = __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float root = __fmaf_rn(__fsqrt_rn(v), c.root_scale, c.epsilon);
  weight = __fmaf_rn(weight, kept, -__fdiv_rn(__fmul_rn(c.step_size, m), root));
}

__device__ inline void apply(const SgdRule& c, float& weight, float& m, float&, float gradient, float kept) {
  const float g = __fmul_rn(gradient, c.gradient_scale);
  m = c.has_m ? __fmaf_rn(m, c.momentum, g) : g;
  weight = __fmaf_rn(weight, kept, -__fmul_rn(c.learning_rate, m));
}

__device__ inline void apply(const MuonRule& c, float& update, float& m, float&, float gradient, float) {
  const float g = __fmul_rn(gradient, c.gradient_scale);
  m = __fmaf_rn(c.one_minus_momentum, __fsub_rn(g, m), m);
  update = __fmaf_rn(c.momentum, __fsub_rn(m, g), g);
}

constexpr int update_width = 4;  // elements per pack: 16 bytes of fp32 states
constexpr int update_threads = 256;
constexpr int warp_lanes = 32;
constexpr int packs_of_lane =
    static_cast<int>(int8_block_elements) / (update_width * warp_lanes);  // a warp has a block

/// Passed as a launch argument, so nothing is allocated or copied.
struct UpdateSegments {
  int count = 0;
  std::size_t begin[max_launch_segments];  ///< positions, ascending
  std::size_t end[max_launch_segments];
  float kept[max_launch_segments];

  /// Index of the last segment that starts at or before `position`, or 0 if there is none. The segment may not contain
  /// `position`.
  __device__ int of(std::size_t position) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (begin[middle] <= position) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

template <typename Rule>
struct StateUpdate {
  UpdateArrays arrays;  ///< states that are null have type f32
  UpdateSegments segments;
  Rule rule;
  RoundingOrigin origin;
  std::uint32_t step;
  bool flat;    ///< all arrays are contiguous
  bool packed;  ///< all arrays can be accessed in packs
};

/// Offsets of an element in the arrays.
struct UpdatePlaces {
  std::size_t weights, moments, gradient, working;
};

__device__ inline std::size_t place(const StridedLayout& runs, std::size_t x, std::size_t run, std::size_t in_run) {
  return runs.run == runs.stride ? x : run * runs.stride + in_run;
}

__device__ inline UpdatePlaces places(const UpdateRuns& runs, std::size_t x, std::size_t run, std::size_t in_run) {
  return {place(runs.weights, x, run, in_run), place(runs.moments, x, run, in_run),
          place(runs.gradient, x, run, in_run), place(runs.working, x, run, in_run)};
}

/// Rounds N elements starting at `position` like cpu::draw() and cpu::round_stochastically().
template <int N, typename Rule>
__device__ void round_states(float (&weights)[N], float (&m)[N], float (&v)[N], const StateUpdate<Rule>& update,
                             std::size_t position) {
  const UpdateArrays& arrays = update.arrays;
  uint4 words{};  // shared by two elements
  for (int i = 0; i < N; ++i) {
    const std::uint64_t element = update.origin.element + position + i, pair = element / 2;
    if (i == 0 || element % 2 == 0)
      words = philox(update.origin.key.low, update.origin.key.high,
                     {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), update.origin.unit,
                      update.step});
    const std::uint32_t first = element % 2 == 0 ? words.x : words.z, second = element % 2 == 0 ? words.y : words.w;
    if (arrays.weights_dtype == DType::bf16)
      weights[i] = round_to_bf16(weights[i], static_cast<std::uint16_t>(first));
    if (arrays.m_dtype == DType::bf16) m[i] = round_to_bf16(m[i], static_cast<std::uint16_t>(first >> 16));
    if (arrays.v_dtype == DType::bf16) v[i] = round_to_bf16(v[i], static_cast<std::uint16_t>(second));
  }
}

template <int N>
__device__ void load_state(float (&to)[N], const void* array, DType dtype, std::size_t at) {
  if (array == nullptr) return;
  if (dtype == DType::f32) {
    load(to, static_cast<const float*>(array) + at);
  } else if (dtype == DType::bf16) {
    load(to, static_cast<const Bf16*>(array) + at);
  }
}

template <int N>
__device__ void store_state(void* array, DType dtype, std::size_t at, const float (&from)[N]) {
  if (array == nullptr) return;
  if (dtype == DType::f32) {
    store(static_cast<float*>(array) + at, from);
  } else if (dtype == DType::bf16) {
    store(static_cast<Bf16*>(array) + at, from);
  }
}

/// Updates N elements of one segment. Moments in int8 are only in m and v.
template <int N, typename Gradient, typename Working, typename Rule>
__device__ void update_elements(const StateUpdate<Rule>& update, const UpdatePlaces& at, float kept,
                                std::size_t position, float (&m)[N], float (&v)[N]) {
  const UpdateArrays& arrays = update.arrays;
  float weights[N] = {}, gradient[N];
  load_state(weights, arrays.weights, arrays.weights_dtype, at.weights);
  load_state(m, arrays.m, arrays.m_dtype, at.moments);
  if (Rule::has_v) load_state(v, arrays.v, arrays.v_dtype, at.moments);
  load(gradient, static_cast<const Gradient*>(arrays.gradient) + at.gradient);
  for (int i = 0; i < N; ++i) apply(update.rule, weights[i], m[i], v[i], gradient[i], kept);
  if (arrays.weights_dtype == DType::bf16 || arrays.m_dtype == DType::bf16 || arrays.v_dtype == DType::bf16)
    round_states(weights, m, v, update, position);
  store_state(arrays.weights, arrays.weights_dtype, at.weights, weights);
  store_state(arrays.m, arrays.m_dtype, at.moments, m);
  if (Rule::has_v) store_state(arrays.v, arrays.v_dtype, at.moments, v);
  if (arrays.working != nullptr) store(static_cast<Working*>(arrays.working) + at.working, weights);
}

/// Updates the first elements of a pack, at most `count`, that are in segments. With `blocks`, m and v have its moments
/// in int8.
template <bool blocks, typename Gradient, typename Working, typename Rule>
__device__ void update_pack(const StateUpdate<Rule>& update, std::size_t x, std::size_t run, std::size_t in_run,
                            std::size_t count, float (&m)[update_width], float (&v)[update_width]) {
  const UpdateSegments& segments = update.segments;
  const std::size_t position = place(update.arrays.runs.positions, x, run, in_run);
  int segment = segments.of(position);
  if (update.packed && update_width <= count && position >= segments.begin[segment] &&
      position + update_width <= segments.end[segment]) {
    update_elements<update_width, Gradient, Working>(update, places(update.arrays.runs, x, run, in_run),
                                                     segments.kept[segment], position, m, v);
    return;
  }
  [[maybe_unused]] constexpr int unrolled = blocks ? update_width : 1;  // registers have no index
#pragma unroll unrolled
  for (std::size_t i = 0; i < update_width; ++i) {
    segment = segments.of(position + i);
    if (i >= count || position + i < segments.begin[segment] || position + i >= segments.end[segment]) continue;
    float one_m[1] = {}, one_v[1] = {};
    if constexpr (blocks) one_m[0] = m[i], one_v[0] = v[i];
    update_elements<1, Gradient, Working>(update, places(update.arrays.runs, x + i, run, in_run + i),
                                          segments.kept[segment], position + i, one_m, one_v);
    if constexpr (blocks) m[i] = one_m[0], v[i] = one_v[0];
  }
}

/// Updates the elements [begin, end) in packs; in strided arrays a pack ends with its run.
template <typename Gradient, typename Working, typename Rule>
__global__ void __launch_bounds__(update_threads)
    update_packs(const __grid_constant__ StateUpdate<Rule> update, std::size_t begin, std::size_t end,
                 std::size_t packs_of_run, std::size_t packs) {
  const std::size_t run_elements = update.arrays.runs.positions.run;
  const std::size_t stride = gridDim.x * std::size_t{update_threads};
  for (std::size_t pack = blockIdx.x * std::size_t{update_threads} + threadIdx.x; pack < packs; pack += stride) {
    const std::size_t run = update.flat ? 0 : pack / packs_of_run;
    const std::size_t in_run = (pack - run * packs_of_run) * update_width + (update.flat ? begin : 0);
    const std::size_t x = update.flat ? in_run : run * run_elements + in_run;
    const std::size_t run_end = update.flat ? end : (run + 1) * run_elements;
    const std::size_t last = run_end < end ? run_end : end;
    if (x >= last) continue;
    float m[update_width] = {}, v[update_width] = {};
    update_pack<false, Gradient, Working>(update, x, run, in_run, last - x, m, v);
  }
}

// Moments in int8 -----------------------------------------------------------------------------------------------------

__device__ const Int8Table<true> i8_table;
__device__ const Int8Table<false> u8_table;

/// Copies of the tables in shared memory: lanes look up different entries.
template <bool has_v>
struct SharedTables {
  float m_values[256], v_values[has_v ? 256 : 1];
  std::uint32_t m_entries[2 * Int8Table<true>::cells], v_entries[has_v ? Int8Table<false>::cells : 1];
};

__device__ inline std::byte* block_at(void* array, std::size_t element) {
  return static_cast<std::byte*>(array) + element / int8_block_elements * int8_block_bytes;
}

/// Converts the lane's packs, a warp's width apart, of a block to floats.
__device__ inline void expand_block(float (&to)[packs_of_lane][update_width], const std::byte* block,
                                    const float* values) {
  const float scale = *reinterpret_cast<const float*>(block + int8_block_elements);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(block) + threadIdx.x % warp_lanes;
#pragma unroll
  for (int pack = 0; pack < packs_of_lane; ++pack) {
    const std::uint32_t word = words[pack * warp_lanes];
    for (int i = 0; i < update_width; ++i)
      to[pack][i] = scale == 0 ? 0.0f : __fmul_rn(values[word >> 8 * i & 255], scale);
  }
}

/// Rounds the packs of all lanes like blocks_of_floats().
template <bool negative>
__device__ void round_block(std::byte* block, const float (&from)[packs_of_lane][update_width],
                            const std::uint32_t* entries) {
  using Table = Int8Table<negative>;
  constexpr std::uint32_t infinity = 0x7f800000u, smallest_normal = 0x00800000u, nan = 0x7fc00000u;
  std::uint32_t largest = 0;
  for (int pack = 0; pack < packs_of_lane; ++pack)
    for (int i = 0; i < update_width; ++i) {
      const std::uint32_t magnitude = Table::magnitude(std::bit_cast<std::uint32_t>(from[pack][i]));
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
  for (int mask = warp_lanes / 2; mask != 0; mask /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, largest, mask);
    largest = other > largest ? other : largest;
  }
  const bool normal = largest >= smallest_normal && largest < infinity;
  const float scale = std::bit_cast<float>(normal ? largest : largest < infinity ? 0u : nan);
  const float factor = __fdiv_rn(1.0f, scale);
  const unsigned lane = threadIdx.x % warp_lanes;
#pragma unroll
  for (int pack = 0; pack < packs_of_lane; ++pack) {
    std::uint32_t word = 0;
    for (int i = 0; i < update_width && normal; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(__fmul_rn(from[pack][i], factor));
      word |= (Table::index(entries[Table::cell(bits)], bits) & 255u) << 8 * i;
    }
    reinterpret_cast<std::uint32_t*>(block)[pack * warp_lanes + lane] = word;
  }
  if (lane == 0) *reinterpret_cast<float*>(block + int8_block_elements) = scale;
}

/// Updates the elements of the blocks [begin, end) of moments; a warp has a block.
template <typename Gradient, typename Working, typename Rule>
__global__ void __launch_bounds__(update_threads)
    update_blocks(const __grid_constant__ StateUpdate<Rule> update, std::size_t begin, std::size_t end) {
  __shared__ SharedTables<Rule::has_v> tables;
  const UpdateArrays& arrays = update.arrays;
  const bool m_in_blocks = is_in_blocks(arrays.m_dtype), v_in_blocks = Rule::has_v && is_in_blocks(arrays.v_dtype);
  for (unsigned i = threadIdx.x; i < 256; i += update_threads) {
    tables.m_values[i] = i8_table.values[i];
    if (Rule::has_v) tables.v_values[i] = u8_table.values[i];
  }
  for (unsigned i = threadIdx.x; i < 2 * Int8Table<true>::cells; i += update_threads)
    tables.m_entries[i] = i8_table.entries[i];
  for (unsigned i = threadIdx.x; Rule::has_v && i < Int8Table<false>::cells; i += update_threads)
    tables.v_entries[i] = u8_table.entries[i];
  __syncthreads();

  constexpr unsigned warps = update_threads / warp_lanes;
  const std::size_t lane_offset = threadIdx.x % warp_lanes * update_width;
  for (std::size_t block = begin + blockIdx.x * std::size_t{warps} + threadIdx.x / warp_lanes; block < end;
       block += std::size_t{gridDim.x} * warps) {
    const std::size_t first = block * int8_block_elements;
    const std::size_t run = update.flat ? 0 : first / update.arrays.runs.positions.run;
    const std::size_t in_run = first - run * update.arrays.runs.positions.run;
    const std::size_t rest = update.arrays.runs.elements - first,
                      count = rest < int8_block_elements ? rest : int8_block_elements;
    const std::size_t position = place(update.arrays.runs.positions, first, run, in_run);
    const int last_segment = update.segments.of(position + count - 1);
    if (update.segments.begin[last_segment] >= position + count || update.segments.end[last_segment] <= position)
      continue;  // no segment
    const std::size_t moments = place(update.arrays.runs.moments, first, run, in_run);
    float m[packs_of_lane][update_width] = {}, v[packs_of_lane][update_width] = {};
    if (m_in_blocks) expand_block(m, block_at(arrays.m, moments), tables.m_values);
    if (v_in_blocks) expand_block(v, block_at(arrays.v, moments), tables.v_values);
#pragma unroll
    for (int pack = 0; pack < packs_of_lane; ++pack) {
      const std::size_t offset = pack * (warp_lanes * update_width) + lane_offset;
      if (offset < count) {
        update_pack<true, Gradient, Working>(update, first + offset, run, in_run + offset, count - offset, m[pack],
                                             v[pack]);
      }
    }
    if (m_in_blocks) round_block<true>(block_at(arrays.m, moments), m, tables.m_entries);
    if (v_in_blocks) round_block<false>(block_at(arrays.v, moments), v, tables.v_entries);
  }
}

// Host side -----------------------------------------------------------------------------------------------------------

}  // namespace

template <typename Rule>
void update_states(StreamView stream, const UpdateArrays& arrays, std::span<const DecaySegment> segments,
                   const UpdateOptions& options, const Rule& rule) {
  const UpdateRuns& runs = arrays.runs;
  constexpr std::size_t width = update_width, threads = update_threads;
  const cudaStream_t queue = native(stream);
  const auto multiprocessors = static_cast<std::size_t>(properties(stream.device()).multiprocessors);
  const auto fits = [&](const void* array, DType dtype, const StridedLayout& layout) {
    return array == nullptr || is_in_blocks(dtype) ||
           (aligned(array) && (layout.contiguous() || (layout.run % width == 0 && layout.stride % width == 0)));
  };
  bool flat = true;
  for (const StridedLayout& layout : {runs.positions, runs.weights, runs.moments, runs.gradient, runs.working})
    flat = flat && layout.contiguous();
  StateUpdate<Rule> update{.arrays = arrays,
                           .rule = rule,
                           .origin = options.rounding,
                           .step = static_cast<std::uint32_t>(options.step),
                           .flat = flat,
                           .packed = fits(arrays.weights, arrays.weights_dtype, runs.weights) &&
                                     fits(arrays.m, arrays.m_dtype, runs.moments) &&
                                     fits(arrays.v, arrays.v_dtype, runs.moments) &&
                                     fits(arrays.gradient, arrays.gradient_dtype, runs.gradient) &&
                                     fits(arrays.working, arrays.working_dtype, runs.working) &&
                                     (flat || runs.positions.run % width == 0)};
  if (arrays.weights == nullptr) update.arrays.weights_dtype = DType::f32;
  if (arrays.m == nullptr) update.arrays.m_dtype = DType::f32;
  if (arrays.v == nullptr) update.arrays.v_dtype = DType::f32;
  const bool blocks = in_blocks(arrays);
  const auto launch_grid = [&](auto kernel_of, std::size_t items, std::size_t of_multiprocessor,
                               auto... arguments) {
    const std::size_t grid = std::min(items, multiprocessors * of_multiprocessor);
    with_type(arrays.gradient_dtype, [&](auto gradient_type) {
      const auto launch_with = [&](auto working_type) {
        launch(Rule::name, queue, {static_cast<unsigned>(grid), threads}, kernel_of(gradient_type, working_type),
               update, arguments...);
      };
      if constexpr (Rule::has_weights) {
        with_type(arrays.working_dtype, launch_with);
      } else {
        launch_with(float{});
      }
    });
  };
  std::size_t done = 0;  // blocks
  for (std::size_t from = 0; from < segments.size();) {
    UpdateSegments& taken = update.segments;
    taken.count = 0;
    for (; from < segments.size() && static_cast<std::size_t>(taken.count) < max_launch_segments; ++from) {
      const DecaySegment& segment = segments[from];
      if (!has_elements(runs.positions, segment)) continue;
      const auto index = static_cast<std::size_t>(taken.count++);
      taken.begin[index] = segment.begin;
      taken.end[index] = segment.end;
      taken.kept[index] = rule.kept_of(segment.decays);
    }
    if (taken.count == 0) continue;
    const std::size_t last_end = taken.end[taken.count - 1];
    if (blocks) {
      // A launch ends with a block, so that each block is rounded once: segments that continue, or start in the last
      // block, are taken again.
      const std::size_t begin =
          std::max(done, elements_before(runs.positions, taken.begin[0]) / int8_block_elements);
      done = ceil_divide(std::min(runs.elements, elements_before(runs.positions, last_end)), int8_block_elements);
      while (from < segments.size() && !has_elements(runs.positions, segments[from])) ++from;
      const std::size_t next = from < segments.size() ? elements_before(runs.positions, segments[from].begin)
                                                      : done * int8_block_elements;
      if (next < done * int8_block_elements) {
        done = next / int8_block_elements;
        while (from > 0 && elements_before(runs.positions, segments[from - 1].end) > done * int8_block_elements)
          --from;
      }
      if (begin >= done) continue;
      launch_grid([]<typename Gradient, typename Working>(
                      Gradient, Working) { return update_blocks<Gradient, Working, Rule>; },
                  ceil_divide(done - begin, threads / warp_lanes), 8, begin, done);
      continue;
    }
    // For flat arrays: only the range from the first of these segments to the last one.
    const std::size_t begin = flat ? taken.begin[0] / width * width : 0;
    const std::size_t end = std::min(runs.elements, elements_before(runs.positions, last_end));
    if (begin >= end) continue;
    const std::size_t of_run = flat ? ceil_divide(end - begin, width) : ceil_divide(runs.positions.run, width);
    const std::size_t packs = flat ? of_run : ceil_divide(end, runs.positions.run) * of_run;
    launch_grid([]<typename Gradient, typename Working>(Gradient,
                                                        Working) { return update_packs<Gradient, Working, Rule>; },
                ceil_divide(packs, threads), 32, begin, end, of_run, packs);
  }
}

template void update_states(StreamView, const UpdateArrays&, std::span<const DecaySegment>, const UpdateOptions&,
                            const AdamWRule&);
template void update_states(StreamView, const UpdateArrays&, std::span<const DecaySegment>, const UpdateOptions&,
                            const SgdRule&);
template void update_states(StreamView, const UpdateArrays&, std::span<const DecaySegment>, const UpdateOptions&,
                            const MuonRule&);

}  // namespace ranvier::runtime::cuda
