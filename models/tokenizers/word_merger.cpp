#include "models/tokenizers/word_merger.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <functional>

namespace ranvier::models {
namespace {

constexpr std::size_t longest_scanned = 192;  // symbols; longer words are merged by a queue

}  // namespace

void WordMerger::finish(std::vector<std::int32_t>& to) {
  if (parts_.empty()) return;
  for (std::size_t i = 0; i + 1 < parts_.size(); ++i)
    parts_[i].joined = merges_.join(parts_[i].token, parts_[i + 1].token);
  if (parts_.size() <= longest_scanned)
    merge_short(to);
  else
    merge_long(to);
  parts_.clear();
}

/// Scans all pairs for the lowest rank after every merge.
void WordMerger::merge_short(std::vector<std::int32_t>& to) {
  Link* const parts = parts_.data();
  std::size_t count = parts_.size();
  while (true) {
    std::size_t lowest = 0;
    for (std::size_t i = 1; i < count; ++i)
      if (parts[i].joined.rank < parts[lowest].joined.rank) lowest = i;
    if (parts[lowest].joined.rank == MergeTable::none) break;
    parts[lowest].token = parts[lowest].joined.token;
    std::copy(parts + lowest + 2, parts + count, parts + lowest + 1);
    --count;
    parts[lowest].joined =
        lowest + 1 < count ? merges_.join(parts[lowest].token, parts[lowest + 1].token) : MergeTable::Joined{};
    if (lowest > 0) parts[lowest - 1].joined = merges_.join(parts[lowest - 1].token, parts[lowest].token);
  }
  for (std::size_t i = 0; i < count; ++i) to.push_back(parts[i].token);
}

/// Uses a queue by rank, then position; skips entries of symbols that have changed.
void WordMerger::merge_long(std::vector<std::int32_t>& to) {
  expect(parts_.size() < ~std::uint32_t{0}, "word is too long: {} bytes", parts_.size());
  const auto count = static_cast<std::uint32_t>(parts_.size());
  const auto later = std::greater<>();
  const auto entry = [this](std::uint32_t i) { return std::uint64_t{parts_[i].joined.rank} << 32 | i; };
  const auto add = [&](std::uint32_t i) {
    if (parts_[i].joined.rank == MergeTable::none) return;
    queue_.push_back(entry(i));
    std::push_heap(queue_.begin(), queue_.end(), later);
  };
  const auto join = [&](std::uint32_t i) {
    parts_[i].joined = parts_[i].after < count ? merges_.join(parts_[i].token, parts_[parts_[i].after].token)
                                               : MergeTable::Joined{};
    add(i);
  };
  queue_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    parts_[i].before = i - 1;
    parts_[i].after = i + 1;
    if (parts_[i].joined.rank != MergeTable::none) queue_.push_back(entry(i));
  }
  std::make_heap(queue_.begin(), queue_.end(), later);
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), later);
    const std::uint64_t first = queue_.back();
    queue_.pop_back();
    const auto i = static_cast<std::uint32_t>(first);
    Link& part = parts_[i];
    if (first != entry(i)) continue;
    const std::uint32_t gone = part.after;
    part.token = part.joined.token;
    part.after = parts_[gone].after;
    if (part.after < count) parts_[part.after].before = i;
    parts_[gone].joined = {};
    join(i);
    if (i > 0) join(part.before);
  }
  for (std::uint32_t i = 0; i < count; i = parts_[i].after) to.push_back(parts_[i].token);
}

}  // namespace ranvier::models
