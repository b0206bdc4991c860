#include "runtime/kernels/int8_block.hpp"

#include "runtime/kernels/int8_tables.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace ranvier::runtime {
namespace {

template <bool negative>
constexpr Int8Table<negative> table;

template <bool negative>
void expand(float* to, const Int8Block& block, std::size_t elements) {
  const std::array<float, 256>& values = table<negative>.values;
  if (block.scale == 0) return std::fill_n(to, elements, 0.0f), void();
  for (std::size_t i = 0; i < elements; ++i) to[i] = values[block.indices[i]] * block.scale;
}

template <bool negative>
void round_block(Int8Block& block, const float* from) {
  using Table = Int8Table<negative>;
  constexpr std::uint32_t infinity = 0x7f800000u, smallest_normal = 0x00800000u;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < int8_block_elements; ++i)
    largest = std::max(largest, Table::magnitude(std::bit_cast<std::uint32_t>(from[i])));
  if (largest < smallest_normal || largest >= infinity) {
    block = {.scale = largest < infinity ? 0.0f : std::numeric_limits<float>::quiet_NaN()};
    return;
  }
  block.scale = std::bit_cast<float>(largest);
  const float factor = 1.0f / block.scale;
  const auto& entries = table<negative>.entries;
  // Separate loops: all but the lookups vectorizes.
  std::array<std::uint32_t, int8_block_elements> bits, found;
  for (std::size_t i = 0; i < int8_block_elements; ++i) {
    bits[i] = std::bit_cast<std::uint32_t>(from[i] * factor);
    found[i] = Table::cell(bits[i]);
  }
  for (std::size_t i = 0; i < int8_block_elements; ++i) found[i] = entries[found[i]];
  for (std::size_t i = 0; i < int8_block_elements; ++i)
    block.indices[i] = static_cast<std::uint8_t>(Table::index(found[i], bits[i]));
}

}  // namespace

void floats_of_blocks(float* to, const Int8Block* from, DType dtype, std::size_t elements) {
  for (std::size_t at = 0; at < elements; at += int8_block_elements, ++from) {
    const std::size_t n = std::min(int8_block_elements, elements - at);
    dtype == DType::i8 ? expand<true>(to + at, *from, n) : expand<false>(to + at, *from, n);
  }
}

void blocks_of_floats(Int8Block* to, const float* from, DType dtype, std::size_t elements) {
  for (std::size_t at = 0; at < elements; at += int8_block_elements, ++to) {
    const std::size_t n = std::min(int8_block_elements, elements - at);
    const float* block = from + at;
    std::array<float, int8_block_elements> padded;
    if (n < int8_block_elements) {
      std::fill(std::copy_n(block, n, padded.begin()), padded.end(), 0.0f);
      block = padded.data();
    }
    dtype == DType::i8 ? round_block<true>(*to, block) : round_block<false>(*to, block);
  }
}

}  // namespace ranvier::runtime
