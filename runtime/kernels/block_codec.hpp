// Numbers in 8 or 4 bits for messages (ZeRO++ §3.1). A block of 256 has a scale (fp32) and 256 or 128 bytes of
// integers q; in 4 bits, byte i has number i in its low half and i + 128 in its high half. With L = 127 or 7 and the
// largest absolute value A:
//
//   scale = A / L, rounded to 17 significant bits
//   q     = x / scale, computed as x · (1 / scale) and rounded to nearest even
//
// So q · scale is exact in fp32, and encoding decoded numbers again gives the same bytes, for all types. A scale
// below 2^-117 is 0, and so are the numbers. A block with a number that is not finite becomes NaN as a whole.
//
// Lengths, runs, strides and offsets of arrays are multiples of 256; arrays are aligned to 16 bytes. Same bits on CPUs
// and GPUs, except bits of NaN. Calls return at once; the work runs on the stream. Loop thread only.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/names.hpp"
#include "runtime/device/stream.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ranvier::runtime {

enum class BlockCode { int8, int4 };
[[nodiscard]] constexpr const char* to_string(BlockCode code) noexcept {
  return enum_name<BlockCode::int4>(code, {"int8", "int4"});
}

inline constexpr std::size_t code_block_elements = 256;
[[nodiscard]] constexpr std::size_t code_block_bytes(BlockCode code) noexcept {
  return sizeof(float) + code_block_elements / (code == BlockCode::int8 ? 1 : 2);
}
/// Bytes of `elements` numbers, a multiple of code_block_elements.
[[nodiscard]] constexpr std::size_t coded_bytes(BlockCode code, std::size_t elements) noexcept {
  return elements / code_block_elements * code_block_bytes(code);
}

/// Encodes n numbers of `from` (f32, bf16, f16) to coded_bytes(n) at `to`.
void encode_blocks(StreamView stream, BlockCode code, void* to, const void* from, DType dtype, std::size_t n,
                   const StridedLayout& from_runs = {});
/// Decodes n numbers, rounded to nearest even.
void decode_blocks(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t n,
                   const StridedLayout& to_runs = {});
/// to[i] = decoded value of to[i] encoded, in place.
void round_to_blocks(StreamView stream, BlockCode code, void* to, DType dtype, std::size_t n,
                     const StridedLayout& to_runs = {});
/// to[i] = to[i] + Σ of number i of `arrays` encoded arrays, in their order, without array `skipped`. Added in fp32 and
/// rounded once. The arrays follow each other at `from`.
void add_blocks(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t arrays,
                std::size_t skipped, std::size_t n, const StridedLayout& to_runs = {});

/// For the kernels: a block's scale, from the bits of its largest absolute value. Zero, or NaN, if all numbers are.
[[nodiscard]] constexpr float block_scale(BlockCode code, std::uint32_t largest) noexcept {
  constexpr std::uint32_t infinity = 0x7f800000u;
  if (largest >= infinity) return std::bit_cast<float>(0x7fc00000u);
  const float exact = std::bit_cast<float>(largest) / (code == BlockCode::int8 ? 127.0f : 7.0f);
  const float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(exact) + 0x40u) & ~0x7fu);
  return scale < 0x1p-117f ? 0.0f : scale;
}
/// x · factor + this has q in its low bits.
inline constexpr float block_rounding = 0x1.8p23f;

// GPU kernels; arguments are checked by the caller, and n > 0.
void encode_blocks_cuda(StreamView stream, BlockCode code, void* to, const void* from, DType dtype, std::size_t n,
                        const StridedLayout& from_runs);
void decode_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t n,
                        const StridedLayout& to_runs);
void round_to_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, std::size_t n,
                          const StridedLayout& to_runs);
void add_blocks_cuda(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t arrays,
                     std::size_t skipped, std::size_t n, const StridedLayout& to_runs);

}  // namespace ranvier::runtime
