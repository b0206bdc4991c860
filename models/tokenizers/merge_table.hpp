// Merges of a byte pair encoding: the token that two neighbours become, and the rank. Data only; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::models {

class MergeTable {
 public:
  struct Joined {
    std::uint32_t rank = none;
    std::int32_t token = 0;
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Allocates space for at most `merges` merges.
  explicit MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 1)), mask_(slots_.size() - 1) {}

  /// If two merges join the same pair, the lower rank applies. Tokens are not negative.
  void add(std::int32_t left, std::int32_t right, Joined joined) {
    const std::uint64_t pair = key(left, right);
    std::size_t i = slot(pair);
    while (slots_[i].pair != empty && slots_[i].pair != pair) i = (i + 1) & mask_;
    if (slots_[i].pair != pair || slots_[i].joined.rank > joined.rank) slots_[i] = {pair, joined};
  }

  /// Result of joining two neighbours; rank none if no merge exists.
  [[nodiscard]] Joined join(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t pair = key(left, right);
    for (std::size_t i = slot(pair);; i = (i + 1) & mask_) {
      if (slots_[i].pair == pair) return slots_[i].joined;
      if (slots_[i].pair == empty) return {};
    }
  }

 private:
  struct Cell {
    std::uint64_t pair = empty;
    Joined joined;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};

  static std::uint64_t key(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t slot(std::uint64_t pair) const noexcept {
    return static_cast<std::size_t>(pair * 0x9e3779b97f4a7c15u >> 32) & mask_;
  }

  std::vector<Cell> slots_;  // open addressing, at most half full
  std::size_t mask_ = 0;
};

}  // namespace ranvier::models
