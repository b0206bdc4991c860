#include "offload/block_checksums.hpp"

#include "offload/tier.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace ranvier::offload {
namespace {

constexpr std::size_t block_bytes = Tier::block_bytes;
constexpr std::size_t lanes = 16;  // enough to keep the multipliers of vector units busy

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

bool is_zero(const std::byte* data) {
  return std::all_of(data, data + block_bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

std::uint64_t BlockChecksums::sum_of(std::uint64_t block, const std::byte* data) {
  std::array<std::uint64_t, lanes> sums;
  sums.fill(mix(block + 1));
  for (std::size_t at = 0; at < block_bytes; at += sizeof sums) {
    std::array<std::uint64_t, lanes> words;
    std::memcpy(words.data(), data + at, sizeof words);
    // Multiplication by odd factors and rotation are reversible, so a changed word always changes its lane.
    for (std::size_t lane = 0; lane < lanes; ++lane)
      sums[lane] = std::rotl(sums[lane] ^ words[lane], 29) * 0x9E3779B97F4A7C15u;
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum = mix(sum ^ lane) + 1;
  return std::max<std::uint64_t>(sum, 1);
}

std::size_t BlockChecksums::count(std::uint64_t file_bytes) {
  return runtime::ceil_divide(file_bytes, block_bytes);
}

void BlockChecksums::record(std::uint64_t offset, std::span<const std::byte> blocks) {
  for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
    const std::uint64_t block = (offset + at) / block_bytes;
    sums_[block] = sum_of(block, blocks.data() + at);
  }
}

std::optional<std::uint64_t> BlockChecksums::first_damaged(std::uint64_t offset,
                                                           std::span<const std::byte> blocks) const {
  for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
    const std::uint64_t block = (offset + at) / block_bytes;
    const std::byte* data = blocks.data() + at;
    if (sums_[block] == 0 ? !is_zero(data) : sums_[block] != sum_of(block, data)) return offset + at;
  }
  return std::nullopt;
}

}  // namespace ranvier::offload
