// Orders the steps of a microbatch's passes, as pure functions; any thread. A backward pass recomputes the segments
// that are not in the stage's recompute buffer; each pass changes its content:
//
//   OrderedPass pass = forward_pass(layout, slot);
//   pass = backward_pass(layout, slot, pass.area);  // the last segment is still in the buffer
//   if (layout.defers()) … weights_pass(layout);    // at any time after that
//
// With deferred weight gradients, each deferred slot is a separate recompute buffer for all segments of one slot.
#pragma once

#include "models/core/stage_layout.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::models {

/// Slot and segment whose forward pass is in the recompute buffer; none: empty.
struct RecomputeBuffer {
  struct Holds {
    int slot = 0;
    std::size_t segment = 0;
    std::size_t slice = 0;  ///< slice of the rank; slices share the buffer

    friend bool operator==(const Holds&, const Holds&) = default;
  };
  std::optional<Holds> holds;

  friend bool operator==(const RecomputeBuffer&, const RecomputeBuffer&) = default;
};

struct OrderedPass {
  StageLayout::Pass steps;
  RecomputeBuffer area;  ///< state after the steps
};

[[nodiscard]] OrderedPass forward_pass(const StageLayout& layout, int slot);

/// Steps down to StageLayout::first_backward_layer(), without deferred weight gradients. If a neighbour waits for the
/// input gradient, the first segment's input gradients precede its weight gradients. `area`: state before the pass.
[[nodiscard]] OrderedPass backward_pass(const StageLayout& layout, int slot, const RecomputeBuffer& area);

/// Steps of the deferred weight gradients, from the back.
[[nodiscard]] StageLayout::Pass weights_pass(const StageLayout& layout);

}  // namespace ranvier::models
