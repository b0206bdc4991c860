// In which order a rank with several slices of the model, its chunks, takes microbatches through them, as pure
// functions; any thread. The fixed order is that of interleaved 1F1B (Narayanan et al. 2021, §2.2): microbatches go in
// groups, forwards through one chunk after another and backwards from the last chunk to the first,
//
//   two chunks, groups of two:   forward   0a 1a 0b 1b 2a 3a 2b 3b …      backward   0b 1b 0a 1a 2b 3b 2a 3a …
//
// As all ranks have the same order, and each chunk sees its microbatches in theirs, no rank waits for one that waits
// for it. Where messages decide, a rank takes what is ready, and of several chunks the one that comes first here.
#pragma once

#include "actors/pipeline/policy.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// A pass of a microbatch through a chunk.
struct SlicePass {
  int chunk = 0;
  int microbatch = 0;

  friend bool operator==(const SlicePass&, const SlicePass&) = default;
};

struct SliceOrder {
  int chunks = 1;
  int microbatches = 1;
  int group = 1;  ///< microbatches; the last one may be smaller

  /// As many as a direction has.
  [[nodiscard]] int passes() const noexcept { return chunks * microbatches; }
  /// The pass with that number, of `forward` ones or of backward ones.
  [[nodiscard]] SlicePass at(bool forward, int number) const;
  [[nodiscard]] int number_of(bool forward, const SlicePass& pass) const;
};

/// Microbatches of a group: as many as there are stages, under GPipe those of a wave of `limit`.
[[nodiscard]] int chunk_group(Policy policy, int stages, int limit);

/// A chunk's next pass in a direction.
struct NextPass {
  int microbatch = 0;
  bool ready = false;
};

/// The chunk that is next in a direction; none: its pass is not ready. `fixed`: in that order whatever is ready.
[[nodiscard]] std::optional<int> next_chunk(const SliceOrder& order, bool forward, std::span<const NextPass> chunks,
                                            bool fixed);

/// The most microbatches that each chunk of a stage has in flight, by chunk: under 1F1B what its order needs, and where
/// messages decide at least a group more than none, so that it can be through before the next one begins. Where
/// weight gradients wait all stages have what the first one has, as with one chunk. `limit`: of each chunk, under a
/// policy that can do with any; 0: none.
[[nodiscard]] std::vector<int> slice_slots(Policy policy, int stage, int stages, int chunks, int microbatches,
                                           int limit);

}  // namespace ranvier::actors
