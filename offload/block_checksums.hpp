// Checksums of a file's blocks, 64 bits each, to detect damage when they are read back: changed bits, lost or
// misplaced blocks. No protection against malice. Their memory (0.2 % of the file's size) is part of the memory plan.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ranvier::offload {

class BlockChecksums {
 public:
  /// Number of checksums for a file of this size.
  [[nodiscard]] static std::size_t count(std::uint64_t file_bytes);

  /// Checksum of a block's 4096 bytes and its number: never 0.
  [[nodiscard]] static std::uint64_t sum_of(std::uint64_t block, const std::byte* data);

  /// Checksums of a file of zeros. `sums` has count() elements, zeros at first, and must outlive this.
  explicit BlockChecksums(std::span<std::uint64_t> sums) : sums_(sums) {}

  /// Records complete blocks that were written at `offset`.
  void record(std::uint64_t offset, std::span<const std::byte> blocks);

  /// Checks complete blocks that were read at `offset`. Returns the offset of the first one that differs from the
  /// record, if any.
  [[nodiscard]] std::optional<std::uint64_t> first_damaged(std::uint64_t offset,
                                                           std::span<const std::byte> blocks) const;

 private:
  std::span<std::uint64_t> sums_;  ///< 0: never written
};

}  // namespace ranvier::offload
