// The steps of a microbatch's passes, in order, as pure functions. What has to be computed again depends on what the
// recompute area of the stage holds, which each pass changes:
//
//   OrderedPass pass = forward_pass(layout, slot);
//   pass = backward_pass(layout, slot, pass.area);  // its last segment is still in the area
//   if (layout.defers()) … weights_pass(layout);    // at any time after that
//
// Where weight gradients wait, each deferred place is such an area of its own, for all segments of one slot.
//
// Any thread.
#pragma once

#include "models/stage_layout.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::models {

/// The segment whose forward pass the recompute area holds, and of which slot; none: of none.
struct RecomputeBuffer {
  struct Holds {
    int slot = 0;
    std::size_t segment = 0;
    std::size_t slice = 0;  ///< of the rank's: they share the area

    friend bool operator==(const Holds&, const Holds&) = default;
  };
  std::optional<Holds> holds;

  friend bool operator==(const RecomputeBuffer&, const RecomputeBuffer&) = default;
};

struct OrderedPass {
  StageLayout::Pass steps;
  RecomputeBuffer area;  ///< after them
};

[[nodiscard]] OrderedPass forward_pass(const StageLayout& layout, int slot);

/// Down to StageLayout::first_backward_layer(), without weight gradients that wait. Where a neighbour waits for the
/// input gradient, those of the frontmost segment come before its weight gradients. `area`: before the pass.
[[nodiscard]] OrderedPass backward_pass(const StageLayout& layout, int slot, const RecomputeBuffer& area);

/// The weight gradients that waited, from the back.
[[nodiscard]] StageLayout::Pass weights_pass(const StageLayout& layout);

}  // namespace ranvier::models
