// Merges the symbols of a word by byte pair encoding: the pair with the lowest rank first, the leftmost of equals,
// until no merge applies. One thread at a time; several mergers may share the merges.
//
//   for (symbol of the word) merger.add(symbol);
//   merger.finish(tokens);
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::models {

/// Token that two neighbours become, and the rank of the merge. Data only; any thread.
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

class WordMerger {
 public:
  /// The merges must outlive the merger.
  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

  void add(std::int32_t symbol) { parts_.push_back({symbol, {}, 0, 0}); }
  /// Appends the tokens of the symbols since the last call.
  void finish(std::vector<std::int32_t>& to);

 private:
  /// A token of the current word; unused once it is joined to its predecessor.
  struct Link {
    std::int32_t token = 0;
    MergeTable::Joined joined;  // merge with the next link
    std::uint32_t before = 0, after = 0;
  };

  void merge_short(std::vector<std::int32_t>& to);
  void merge_long(std::vector<std::int32_t>& to);

  const MergeTable& merges_;
  std::vector<Link> parts_;
  std::vector<std::uint64_t> queue_;
};

}  // namespace ranvier::models
