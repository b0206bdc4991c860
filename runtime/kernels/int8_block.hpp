// Numbers in 8 bits, in blocks of 256 with a common scale: the largest absolute value. Each byte is an index into a map
// of 256 values between -1 and 1 (DType::i8) or 0 and 1 (DType::u8), which are dense near 0: the dynamic maps of
// bitsandbytes (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", §2). Numbers are rounded to the
// nearest value of the map, a tie to the lower one; u8 has no negative numbers and rounds them to 0.
//
// Unlike bitsandbytes, u8 rounds only 0 to 0, and other small numbers to the next larger value. AdamW divides by the
// root of v: weights with small gradients would move much too far if their v became 0.
//
// Converting to floats and back gives the same bytes; for this the lowest value of i8 is -1, as in bitsandbytes' code
// for CPUs. Blocks of zeros are zero bytes, and so are blocks whose numbers are all below 2^-126. A block with a number
// that is not finite becomes NaN as a whole.
#pragma once

#include "runtime/base/dtype.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::runtime {

struct Int8Block {
  std::array<std::uint8_t, int8_block_elements> indices{};
  float scale = 0;
};
static_assert(sizeof(Int8Block) == int8_block_bytes);

/// Converts `elements` numbers, starting at the start of a block; the rest of the last block is zero. On the host.
void floats_of_blocks(float* to, const Int8Block* from, DType dtype, std::size_t elements);
void blocks_of_floats(Int8Block* to, const float* from, DType dtype, std::size_t elements);

}  // namespace ranvier::runtime
