#include "models/core/pass_order.hpp"

#include "models/families/gpt.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

using namespace ranvier;
using models::StageLayout;
using Kind = StageLayout::PassStep::Kind;

namespace {

const models::Architecture& gpt() {
  static const models::Architecture architecture =
      models::make_gpt({.layers = 7, .hidden = 16, .heads = 2, .vocab_size = 37, .sequence_length = 8, .tile = 2});
  return architecture;
}

StageLayout layout_of(models::LayerRange layers, int recompute, int slots = 3, int places = 0, int deferred = 0) {
  return {gpt(),
          {.layers = layers,
           .capacity = {2, 8},
           .slots = slots,
           .recompute = recompute,
           .checkpoint_places = places,
           .deferred_slots = deferred}};
}

/// "f1 r1 b1 w1 …": forward, forward again, backward_input, backward_weight; each call once, with its phases checked.
std::string text(const StageLayout& layout, const StageLayout::Pass& pass) {
  std::string all;
  for (std::size_t s = 0; s < pass.size(); ++s) {
    const StageLayout::PassStep& step = pass[s];
    if (step.part > 0) {
      CHECK(pass[s - 1].layer == step.layer);
      CHECK(pass[s - 1].kind == step.kind);
      CHECK(pass[s - 1].part + 1 == step.part);
      continue;
    }
    CHECK(s + layout.parts_of(step.layer, step.kind) <= pass.size());
    const char kind = step.kind == Kind::backward_weight  ? 'w'
                      : step.kind == Kind::backward_input ? 'b'
                      : step.again                        ? 'r'
                                                          : 'f';
    all += fmt::format("{}{}{}", all.empty() ? "" : " ", kind, step.layer);
  }
  return all;
}

}  // namespace

TEST_CASE("a backward pass computes weight gradients immediately, unless a neighbor waits for the input gradient") {
  const StageLayout front = layout_of({0, 3}, 0), middle = layout_of({3, 6}, 0);
  CHECK(text(front, forward_pass(front, 0).steps) == "f0 f1 f2");
  CHECK(text(front, backward_pass(front, 0, {}).steps) == "b2 w2 b1 w1 b0 w0");
  CHECK(text(middle, backward_pass(middle, 0, {}).steps) == "b2 b1 b0 w2 w1 w0");
  const StageLayout again = layout_of({3, 7}, 2);
  CHECK(text(again, backward_pass(again, 0, {}).steps) == "r2 r3 b3 w3 b2 w2 r0 r1 b1 b0 w1 w0");
}

TEST_CASE("only a backward pass directly after its forward pass still has the last segment") {
  const StageLayout layout = layout_of({3, 7}, 2);
  const auto one = forward_pass(layout, 1), two = forward_pass(layout, 2);
  CHECK(text(layout, backward_pass(layout, 1, one.area).steps) == "b3 w3 b2 w2 r0 r1 b1 b0 w1 w0");
  CHECK(text(layout, backward_pass(layout, 1, two.area).steps) == "r2 r3 b3 w3 b2 w2 r0 r1 b1 b0 w1 w0");
  CHECK(backward_pass(layout, 1, one.area).area == models::RecomputeBuffer{});
}

TEST_CASE("deferred weight gradients are a separate pass, and segments are recomputed once for both") {
  const StageLayout middle = layout_of({3, 6}, 0, 3, 0, 2);
  CHECK(middle.deferred_slots() == 2);
  CHECK(text(middle, backward_pass(middle, 0, {}).steps) == "b2 b1 b0");
  CHECK(text(middle, weights_pass(middle)) == "w2 w1 w0");
  const StageLayout front = layout_of({0, 4}, 2, 3, 0, 9);
  CHECK(front.deferred_slots() == 3);  // at most as many as slots
  CHECK(text(front, backward_pass(front, 0, {}).steps) == "r2 r3 b3 b2 r0 r1 b1 b0");
  CHECK(text(front, backward_pass(front, 0, {{{0, 1}}}).steps) == "b3 b2 r0 r1 b1 b0");
  CHECK(text(front, weights_pass(front)) == "w3 w2 w1 w0");
}

TEST_CASE("arrays in a deferred slot do not overlap") {
  for (const models::LayerRange layers : {models::LayerRange{0, 9}, {2, 9}, {4, 6}})
    for (const int recompute : {0, 1, 2, 3})
      for (const int places : {0, 2}) {
        CAPTURE(recompute);
        const StageLayout layout = layout_of(layers, recompute, 3, places, 2);
        std::map<std::size_t, std::size_t> taken;  // ends by start offset
        const auto take = [&](std::size_t begin, std::size_t bytes) {
          if (bytes > 0) CHECK(taken.try_emplace(begin, begin + bytes).second);
        };
        for (std::size_t l = 0; l < layout.layers(); ++l) {
          const StageLayout::LayerMemoryMap& map = layout.layer(l);
          const models::LayerMemory memory = map.layer->memory(layout.capacity());
          take(map.deferred_offset, memory.deferred);
          const std::size_t output = map.layer->output_elements(8) * 2 * sizeof(float);
          CHECK(map.output_gradient.has_value() == (memory.output_gradient && l + 1 < layout.layers()));
          if (map.output_gradient) take(*map.output_gradient, output);
          if (recompute == 0) continue;
          take(map.recomputed_offset + map.saved_offset, memory.saved);
          take(map.recomputed_offset + (map.ends_segment ? map.scratch_output : map.output_offset), output);
          if (map.reads_checkpoint) take(map.checkpoint_copy, layout.checkpoint_bytes(*map.reads_checkpoint, 2));
        }
        std::size_t end = 0;
        for (const auto& [begins, ends] : taken) {
          CHECK(end <= begins);
          end = ends;
        }
        CHECK(end <= layout.sizes().deferred);
      }
}

TEST_CASE("in any order of passes, the inputs of a step are in the slot or in the recompute buffer") {
  const std::uint64_t seed = test::random_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const models::LayerRange layers : {models::LayerRange{0, 9}, {2, 9}, {4, 6}}) {
    for (const int recompute : {0, 1, 2, 3, 7}) {
      CAPTURE(recompute);
      const StageLayout layout = layout_of(layers, recompute);
      std::vector<bool> forward_done(3, false);
      models::RecomputeBuffer area;
      // The slot and segment whose activations are in the buffer, computed from the steps only.
      std::optional<std::pair<int, std::size_t>> in_area;
      const auto segment_of = [&](std::size_t layer) {
        return recompute == 0 ? 0 : layer / std::size_t(recompute);
      };
      for (int i = 0; i < 60; ++i) {
        const int slot = static_cast<int>(random() % 3);
        const bool backward = forward_done[std::size_t(slot)];
        const auto pass = backward ? backward_pass(layout, slot, area) : forward_pass(layout, slot);
        area = pass.area;
        forward_done[std::size_t(slot)] = !backward;
        std::vector<int> calls(layout.layers() * 3, 0);
        int completes = 0;
        for (const auto& step : pass.steps) {
          if (step.part == 0) ++calls[step.layer * 3 + std::size_t(step.kind)];
          completes += step.completes_input_gradient;
          CHECK(step.again == (backward && step.kind == Kind::forward));
          if (recompute == 0) {
            CHECK_FALSE(step.again);
          } else if (step.kind == Kind::forward) {
            in_area = {slot, segment_of(step.layer)};
          } else {
            CHECK(in_area == std::pair{slot, segment_of(step.layer)});
          }
        }
        CHECK(completes == (backward && layers.begin > 0 ? 1 : 0));
        for (std::size_t l = 0; l < layout.layers(); ++l) {
          CHECK(calls[l * 3] <= 1);
          if (!backward) CHECK(calls[l * 3] == 1);
          CHECK(calls[l * 3 + 1] == backward);
          CHECK(calls[l * 3 + 2] == backward);
        }
      }
    }
  }
}

TEST_CASE("checkpoints in other memory take no memory of slots, and each is written once and read by its segment") {
  const StageLayout kept = layout_of({1, 9}, 2), away = layout_of({1, 9}, 2, 3, 2);
  CHECK(away.checkpoints() == 3);
  CHECK(kept.checkpoints() == 0);
  CHECK(kept.sizes().slot - away.sizes().slot == 3 * away.checkpoint_bytes(0, 2));
  CHECK(away.sizes().checkpoint == 4096);
  std::vector<int> written(3, 0), read(3, 0);
  for (const auto& step : forward_pass(away, 0).steps) {
    if (step.part > 0) continue;
    if (const auto c = away.checkpoint_written(step)) ++written[*c];
    if (const auto c = away.checkpoint_read(step)) ++read[*c];
  }
  CHECK(written == std::vector<int>{1, 1, 1});
  CHECK(read == written);
}

TEST_CASE("backward passes end at the first layer with trained parameters, and frozen layers have no gradients") {
  // Layers: embedding, seven blocks, head. Trained: blocks 2 and 4, layers 3 and 5.
  const models::Architecture architecture =
      models::make_gpt({.layers = 7, .hidden = 16, .heads = 2, .vocab_size = 37, .sequence_length = 8},
                       models::make_tuning("^h.(2|4)", ""));
  const auto layout = [&](models::LayerRange layers, int recompute, int places = 0) {
    return StageLayout(
        architecture,
        {.layers = layers, .capacity = {2, 8}, .slots = 3, .recompute = recompute, .checkpoint_places = places});
  };
  const auto backward = [](const StageLayout& stage) { return text(stage, backward_pass(stage, 0, {}).steps); };
  const StageLayout whole = layout({0, 9}, 0);
  CHECK(backward(whole) == "b8 b7 b6 b5 w5 b4 b3 w3");
  CHECK(backward(layout({0, 9}, 2)) == "r8 b8 r6 r7 b7 b6 r4 r5 b5 w5 b4 r2 r3 b3 w3");

  const StageLayout front = layout({0, 3}, 0), middle = layout({3, 5}, 0), back = layout({5, 9}, 0);
  CHECK(backward(front).empty());
  CHECK_FALSE(front.awaits_gradients());
  CHECK(backward(middle) == "b1 b0 w0");
  CHECK(middle.awaits_gradients());
  CHECK_FALSE(middle.sends_gradients());
  CHECK(backward(back) == "b3 b2 b1 b0 w0");
  CHECK(back.sends_gradients());

  // Skipped layers save nothing in slots and checkpoints.
  CHECK(front.sizes().slot < layout({5, 8}, 0).sizes().slot / 2);
  CHECK(layout({0, 9}, 1, 2).checkpoints() == 6);
  CHECK(layout({0, 3}, 1, 2).checkpoints() == 0);
  CHECK(layout({0, 9}, 2, 2).checkpoints() == 4);
}
