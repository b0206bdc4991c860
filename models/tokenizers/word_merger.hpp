// Merges the symbols of a word by byte pair encoding: the pair with the lowest rank first, the leftmost of equals,
// until no merge applies. One thread at a time; several mergers may share the merges.
//
//   for (symbol of the word) merger.add(symbol);
//   merger.finish(tokens);
#pragma once

#include "models/tokenizers/merge_table.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::models {

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
