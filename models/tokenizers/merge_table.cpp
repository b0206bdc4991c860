#include "models/tokenizers/merge_table.hpp"

#include <bit>

namespace ranvier::models {

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 1)), mask_(slots_.size() - 1) {}

void MergeTable::add(std::int32_t left, std::int32_t right, Joined joined) {
  const std::uint64_t pair = key(left, right);
  std::size_t i = slot(pair);
  while (slots_[i].pair != empty && slots_[i].pair != pair) i = (i + 1) & mask_;
  if (slots_[i].pair == pair && slots_[i].joined.rank <= joined.rank) return;
  slots_[i] = {pair, joined};
}

}  // namespace ranvier::models
