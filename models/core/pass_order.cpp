#include "models/core/pass_order.hpp"

#include <algorithm>

namespace ranvier::models {

namespace {

using PassStep = StageLayout::PassStep;
using Segment = StageLayout::Segment;

/// Appends all phases of a step's call, except empty ones.
void append(StageLayout::Pass& pass, const StageLayout& layout, const PassStep& step) {
  const std::size_t parts = layout.parts_of(step.layer, step.kind);
  for (std::size_t part = 0; part < parts; ++part) {
    if (!layout.runs(step.layer, step.kind, part)) continue;
    pass.push_back(step);
    pass.back().part = part;
    pass.back().slice = layout.slice();
    pass.back().completes_input_gradient = step.completes_input_gradient && part + 1 == parts;
  }
}

void append_forward(StageLayout::Pass& pass, const StageLayout& layout, const Segment& segment, bool again) {
  for (std::size_t l = segment.begin; l < segment.end; ++l) {
    append(pass, layout, {.kind = PassStep::Kind::forward, .again = again, .layer = l});
  }
}

}  // namespace

OrderedPass forward_pass(const StageLayout& layout, int slot) {
  OrderedPass pass;
  for (const Segment& segment : layout.segments()) append_forward(pass.steps, layout, segment, false);
  pass.area.holds = {slot, layout.segments().size() - 1, layout.slice()};
  return pass;
}

OrderedPass backward_pass(const StageLayout& layout, int slot, const RecomputeBuffer& area) {
  OrderedPass pass;
  const std::size_t front = layout.first_backward_layer();
  for (std::size_t s = layout.segments().size(); s-- > 0;) {
    const Segment& segment = layout.segments()[s];
    if (segment.end <= front) break;
    const bool held = area.holds == RecomputeBuffer::Holds{slot, s, layout.slice()};
    if (layout.recomputes() && !held) append_forward(pass.steps, layout, segment, true);
    const bool neighbour_waits = s == 0 && layout.sends_gradients();
    const bool weights_follow = neighbour_waits || layout.defers();
    const std::size_t begin = std::max(segment.begin, front);
    const auto weight_gradients = [&](std::size_t l) {
      append(pass.steps, layout, {.kind = PassStep::Kind::backward_weight, .layer = l});
    };
    for (std::size_t l = segment.end; l-- > begin;) {
      append(pass.steps, layout,
             {.kind = PassStep::Kind::backward_input,
              .completes_input_gradient = neighbour_waits && l == begin,
              .layer = l});
      if (!weights_follow) weight_gradients(l);
    }
    if (!neighbour_waits || layout.defers()) continue;
    for (std::size_t l = segment.end; l-- > begin;) weight_gradients(l);
  }
  return pass;
}

StageLayout::Pass weights_pass(const StageLayout& layout) {
  StageLayout::Pass pass;
  for (std::size_t l = layout.layers(); l-- > layout.first_backward_layer();)
    append(pass, layout, {.kind = PassStep::Kind::backward_weight, .layer = l});
  return pass;
}

}  // namespace ranvier::models
