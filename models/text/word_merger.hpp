// A word's tokens by a byte pair encoding: of all neighbours that some merge joins, those of the lowest rank are joined
// first, the leftmost of several, until none is left. One thread at a time; several may share the merges.
//
//   for (symbol of the word) merger.add(symbol);
//   merger.finish(tokens);
#pragma once

#include "models/text/merge_table.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::models {

class WordMerger {
 public:
  /// The merges outlive the merger.
  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

  void add(std::int32_t symbol) { parts_.push_back({symbol, {}, 0, 0}); }
  /// Appends what the symbols since the last call become.
  void finish(std::vector<std::int32_t>& to);

 private:
  /// A token while its neighbours are joined, or nothing any more once it was joined to the one before.
  struct Link {
    std::int32_t token = 0;
    MergeTable::Joined joined;  // with the part that follows
    std::uint32_t before = 0, after = 0;
  };

  void merge_short(std::vector<std::int32_t>& to);
  void merge_long(std::vector<std::int32_t>& to);

  const MergeTable& merges_;
  std::vector<Link> parts_;
  std::vector<std::uint64_t> queue_;
};

}  // namespace ranvier::models
