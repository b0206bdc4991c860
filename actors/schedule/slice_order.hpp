// Order of passes on a rank with several model chunks, as pure functions; any thread. The fixed order is interleaved
// 1F1B (Narayanan et al. 2021, §2.2): groups of microbatches pass the chunks one after another,
//
//   two chunks, groups of two:   forward   0a 1a 0b 1b 2a 3a 2b 3b …      backward   0b 1b 0a 1a 2b 3b 2a 3a …
//
// All ranks have the same order, and each chunk runs microbatches in order, so there is no deadlock. A message-driven
// rank starts a ready pass. If several chunks are ready, it starts the first one in this order.
#pragma once

#include "actors/schedule/policy.hpp"

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

  /// Number of passes per direction.
  [[nodiscard]] int passes() const noexcept { return chunks * microbatches; }
  /// The pass with this number in a direction.
  [[nodiscard]] SlicePass at(bool forward, int number) const;
  [[nodiscard]] int number_of(bool forward, const SlicePass& pass) const;
};

/// Microbatches per group: the number of stages; under GPipe `limit`, one wave.
[[nodiscard]] int chunk_group(Policy policy, int stages, int limit);

/// A chunk's next pass in a direction.
struct NextPass {
  int microbatch = 0;
  bool ready = false;
};

/// Next chunk in a direction; none: no pass is ready. `fixed`: only the next pass of the fixed order qualifies.
[[nodiscard]] std::optional<int> next_chunk(const SliceOrder& order, bool forward, std::span<const NextPass> chunks,
                                            bool fixed);

/// Maximum number of microbatches in flight, by chunk. `limit`: upper bound per chunk, for schedules that work with
/// any; 0: none. One chunk has this limit, or else the number of stages, under GPipe all microbatches. Several chunks:
/// 1F1B has as many as its order needs; message-driven schedules have at least one group; with deferred weight
/// gradients all stages have as many as the first one.
[[nodiscard]] std::vector<int> slice_slots(Policy policy, int stage, int stages, int chunks, int microbatches,
                                           int limit);

}  // namespace ranvier::actors
