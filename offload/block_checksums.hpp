// What the blocks of a file must hold, as one number of 64 bits each, so that damage is noticed when they are read
// back: bits that changed, blocks that were lost, or that come from another place. Not against malice. Their memory,
// 0.2 % of the file's size, is planned with everything else. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ranvier::offload {

class BlockChecksums {
 public:
  /// Numbers for so many bytes of a file.
  [[nodiscard]] static std::size_t count(std::uint64_t file_bytes);

  /// Of the 4096 bytes of a block, of which the number is part: never 0.
  [[nodiscard]] static std::uint64_t sum_of(std::uint64_t block, const std::byte* data);

  /// Of a file of zeros that has count() numbers in `sums`, zeros at first, which outlive this.
  explicit BlockChecksums(std::span<std::uint64_t> sums) : sums_(sums) {}

  /// Whole blocks were written at `offset`.
  void record(std::uint64_t offset, std::span<const std::byte> blocks);

  /// Whole blocks were read at `offset`: that of the first one that is not what was recorded, if any.
  [[nodiscard]] std::optional<std::uint64_t> first_damaged(std::uint64_t offset,
                                                           std::span<const std::byte> blocks) const;

 private:
  std::span<std::uint64_t> sums_;  ///< 0: never written
};

}  // namespace ranvier::offload
