#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/kernels/packs_cuda.cuh"

#include <algorithm>
#include <type_traits>

namespace ranvier::runtime {
namespace {

constexpr unsigned codec_threads = 256, codec_warp = 32;
constexpr int codec_width = 4;  // numbers of a lane in each half of a block

template <BlockCode code>
using CodeOf = std::integral_constant<BlockCode, code>;

/// Numbers of a lane: 4 · lane to 4 · lane + 3 of each half of the block.
struct LaneValues {
  float at[2][codec_width];
};

__device__ inline unsigned codec_lane() { return threadIdx.x % codec_warp; }

template <typename T>
__device__ void load_lane(LaneValues& to, const T* block) {
  for (int half = 0; half < 2; ++half)
    cuda::load(to.at[half], block + half * (code_block_elements / 2) + codec_lane() * codec_width);
}

template <typename T>
__device__ void store_lane(T* block, const LaneValues& from) {
  for (int half = 0; half < 2; ++half)
    cuda::store(block + half * (code_block_elements / 2) + codec_lane() * codec_width, from.at[half]);
}

/// Scale of the block whose numbers all lanes have.
template <BlockCode code>
__device__ float scale_of_lanes(const LaneValues& values) {
  std::uint32_t largest = 0;
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < codec_width; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values.at[half][i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
  for (unsigned mask = codec_warp / 2; mask != 0; mask /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, largest, static_cast<int>(mask));
    largest = other > largest ? other : largest;
  }
  return block_scale(code, largest);
}

/// q in the low bits; zero unless the block has a finite, positive scale.
__device__ inline std::uint32_t rounded_to_scale(float value, float scale) {
  if (!(scale > 0)) return 0;
  return std::bit_cast<std::uint32_t>(__fmaf_rn(value, __fdiv_rn(1.0f, scale), block_rounding)) -
         std::bit_cast<std::uint32_t>(block_rounding);
}

__device__ inline float scaled(std::uint32_t q, float scale) {
  return __fmul_rn(static_cast<float>(static_cast<std::int32_t>(q)), scale);
}

template <BlockCode code>
__device__ void decode_lane(LaneValues& to, const std::byte* block) {
  const float scale = *reinterpret_cast<const float*>(block);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(block + sizeof(float)) + codec_lane();
  for (int half = 0; half < 2; ++half) {
    // The number's bits are moved to the top of the word, and back with its sign.
    constexpr int unused = code == BlockCode::int8 ? 24 : 28;
    const std::uint32_t word = code == BlockCode::int8 ? words[half * codec_warp] : words[0] >> 4 * half;
    for (int i = 0; i < codec_width; ++i) {
      const auto q = static_cast<std::int32_t>((word >> 8 * i) << unused) >> unused;
      to.at[half][i] = scaled(static_cast<std::uint32_t>(q), scale);
    }
  }
}

/// Calls use(block) for every block of the array, one warp each.
template <typename Use>
__device__ void for_blocks_of_warp(std::size_t blocks, Use use) {
  constexpr unsigned warps = codec_threads / codec_warp;
  const std::size_t stride = gridDim.x * std::size_t{warps};
  for (std::size_t block = blockIdx.x * std::size_t{warps} + threadIdx.x / codec_warp; block < blocks;
       block += stride)
    use(block);
}

template <BlockCode code, typename T>
__global__ void __launch_bounds__(codec_threads)
    encode_kernel(std::byte* to, const T* from, const StridedLayout runs, std::size_t blocks) {
  for_blocks_of_warp(blocks, [&](std::size_t number) {
    LaneValues values;
    load_lane(values, from + runs.at(number * code_block_elements));
    const float scale = scale_of_lanes<code>(values);
    std::uint32_t packed[2] = {};
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < codec_width; ++i) {
        const std::uint32_t q = rounded_to_scale(values.at[half][i], scale);
        if constexpr (code == BlockCode::int8) {
          packed[half] |= (q & 255u) << 8 * i;
        } else {
          packed[0] |= (q & 15u) << (8 * i + 4 * half);
        }
      }
    std::byte* const block = to + number * code_block_bytes(code);
    auto* const words = reinterpret_cast<std::uint32_t*>(block + sizeof(float)) + codec_lane();
    words[0] = packed[0];
    if constexpr (code == BlockCode::int8) words[codec_warp] = packed[1];
    if (codec_lane() == 0) *reinterpret_cast<float*>(block) = scale;
  });
}

template <BlockCode code, typename T>
__global__ void __launch_bounds__(codec_threads)
    decode_kernel(T* to, const std::byte* from, const StridedLayout runs, std::size_t blocks) {
  for_blocks_of_warp(blocks, [&](std::size_t number) {
    LaneValues values;
    decode_lane<code>(values, from + number * code_block_bytes(code));
    store_lane(to + runs.at(number * code_block_elements), values);
  });
}

template <BlockCode code, typename T>
__global__ void __launch_bounds__(codec_threads) round_kernel(T* to, const StridedLayout runs, std::size_t blocks) {
  for_blocks_of_warp(blocks, [&](std::size_t number) {
    T* const block = to + runs.at(number * code_block_elements);
    LaneValues values;
    load_lane(values, block);
    const float scale = scale_of_lanes<code>(values);
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < codec_width; ++i)
        values.at[half][i] = scaled(rounded_to_scale(values.at[half][i], scale), scale);
    store_lane(block, values);
  });
}

template <BlockCode code, typename T>
__global__ void __launch_bounds__(codec_threads)
    add_kernel(T* to, const std::byte* from, std::size_t arrays, std::size_t skipped, const StridedLayout runs,
               std::size_t blocks) {
  for_blocks_of_warp(blocks, [&](std::size_t number) {
    T* const block = to + runs.at(number * code_block_elements);
    LaneValues sums, values;
    load_lane(sums, block);
    for (std::size_t a = 0; a < arrays; ++a) {
      if (a == skipped) continue;
      decode_lane<code>(values, from + (a * blocks + number) * code_block_bytes(code));
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < codec_width; ++i) sums.at[half][i] = __fadd_rn(sums.at[half][i], values.at[half][i]);
    }
    store_lane(block, sums);
  });
}

/// Calls use(CodeOf<code>, T, grid, blocks) with the array's types on the GPU.
template <typename Use>
void with_codec(StreamView stream, BlockCode code, DType dtype, std::size_t n, Use use) {
  constexpr std::size_t blocks_per_multiprocessor = 8;
  const std::size_t blocks = n / code_block_elements;
  const auto most =
      static_cast<std::size_t>(cuda::properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  const cuda::Grid grid{static_cast<unsigned>(std::min(ceil_divide(blocks, codec_threads / codec_warp), most)),
                        codec_threads};
  with_float_type<cuda::Bf16, cuda::F16>(dtype, [&](auto type) {
    if (code == BlockCode::int8) {
      use(CodeOf<BlockCode::int8>{}, type, grid, blocks);
    } else {
      use(CodeOf<BlockCode::int4>{}, type, grid, blocks);
    }
  });
}

}  // namespace

void encode_blocks_cuda(StreamView stream, BlockCode code, void* to, const void* from, DType dtype, std::size_t n,
                        const StridedLayout& from_runs) {
  with_codec(stream, code, dtype, n,
             [&]<BlockCode C, typename T>(CodeOf<C>, T, const cuda::Grid& grid, std::size_t blocks) {
               cuda::launch("encode_blocks", cuda::native(stream), grid, encode_kernel<C, T>,
                            static_cast<std::byte*>(to), static_cast<const T*>(from), from_runs, blocks);
             });
}

void decode_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t n,
                        const StridedLayout& to_runs) {
  with_codec(stream, code, dtype, n,
             [&]<BlockCode C, typename T>(CodeOf<C>, T, const cuda::Grid& grid, std::size_t blocks) {
               cuda::launch("decode_blocks", cuda::native(stream), grid, decode_kernel<C, T>, static_cast<T*>(to),
                            static_cast<const std::byte*>(from), to_runs, blocks);
             });
}

void round_to_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, std::size_t n,
                          const StridedLayout& to_runs) {
  with_codec(stream, code, dtype, n,
             [&]<BlockCode C, typename T>(CodeOf<C>, T, const cuda::Grid& grid, std::size_t blocks) {
               cuda::launch("round_to_blocks", cuda::native(stream), grid, round_kernel<C, T>, static_cast<T*>(to),
                            to_runs, blocks);
             });
}

void add_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t arrays,
                     std::size_t skipped, std::size_t n, const StridedLayout& to_runs) {
  with_codec(stream, code, dtype, n,
             [&]<BlockCode C, typename T>(CodeOf<C>, T, const cuda::Grid& grid, std::size_t blocks) {
               cuda::launch("add_blocks", cuda::native(stream), grid, add_kernel<C, T>, static_cast<T*>(to),
                            static_cast<const std::byte*>(from), arrays, skipped, to_runs, blocks);
             });
}

}  // namespace ranvier::runtime
