#include "models/modules/mlp.hpp"

#include "models/ops/activation.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

LinearOptions up_options(const MlpOptions& options) {
  expect(!options.gate || (!options.bias && options.layout == LinearOptions::Layout::out_in),
         "an MLP with a gate has no biases and weights stored [out, in]");
  LinearOptions up{.tensors = {},
                   .in = options.channels,
                   .layout = options.layout,
                   .bias = options.bias,
                   .initializer = options.up.initializer,
                   .cut = {options.tiles, LinearOptions::Cut::Along::outputs_apart},
                   .matrices = std::vector<std::size_t>(options.gate ? 2 : 1, options.inner)};
  if (options.gate && options.gate->name == options.up.name) {
    up.tensors.push_back({options.up.name, 2 * options.inner, 2});
  } else {
    if (options.gate) up.tensors.push_back({options.gate->name, options.inner});
    up.tensors.push_back({options.up.name, options.inner});
  }
  return up;
}

}  // namespace

Mlp::Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options)
    : gated_(options.gate.has_value()),
      inner_(options.inner),
      gelu_(options.gelu),
      dtype_(builder.precision().compute),
      up_(builder, unit, up_options(options)),
      down_(builder, unit,
            {.tensors = {{options.down.name, options.channels}},
             .in = options.inner,
             .layout = options.layout,
             .bias = options.bias,
             .initializer = options.down.initializer,
             .cut = {options.tiles, LinearOptions::Cut::Along::inputs},
             .matrices = {options.channels}}),
      tiles_(joined(up_.tiles(), down_.tiles())) {}

Mlp::Arrays Mlp::plan(CallMemory& memory, const MicrobatchShape& shape, std::size_t scratch) const {
  const std::size_t N = rows(shape), S = tiles_.size(), element = size_of(dtype_);
  const bool saves = shape.saved == SavedActivations::all;
  MemoryLayout wide, tile;
  wide.add(N * up_.out() / S, element);
  tile.add(N * inner_ / S, element);
  Arrays at;
  at.up_bytes = wide.bytes();
  at.tile_bytes = tile.bytes();
  at.up = memory.saved.add(S, wide.bytes());
  if (saves) at.active = memory.saved.add(S, tile.bytes());
  if (!gated_ || !saves) at.kept = memory.deferred.add(S, tile.bytes());
  at.workspace_bytes = saves && !gated_ ? 0 : tile.bytes();
  at.workspace = memory.workspace.add(1, at.workspace_bytes);
  at.up_product = up_.plan(memory, N, scratch);
  at.down_product = down_.plan(memory, N, scratch);
  return at;
}

std::size_t Mlp::scratch_bytes(std::size_t rows) const {
  return std::max(up_.scratch_bytes(rows), down_.scratch_bytes(rows));
}

void Mlp::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                  const std::byte* addend, std::size_t tile) const {
  std::byte* const active = at.active ? Mlp::active(call, at, tile) : call.workspace + at.workspace;
  if (gated_) {
    up_.forward(call, up(call, at, tile), x, at.up_product, tile);
    swiglu_forward(call.stream, dtype_, active, up(call, at, tile), rows(call), inner_ / tiles_.size());
  } else {
    up_.forward_gelu(call, up(call, at, tile), active, x, gelu_, at.up_product, tile);
  }
  down_.forward_add(call, y, active, addend, at.down_product, tile);
}

void Mlp::decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide,
                 std::byte* narrow) const {
  up_.decode(call, wide, x);
  std::byte* const active = gated_ ? narrow : wide;
  if (gated_) {
    swiglu_forward(call.stream, dtype_, active, wide, rows(call), inner_);
  } else {
    gelu_forward(call.stream, dtype_, active, wide, rows(call) * inner_, gelu_);
  }
  down_.decode(call, y, active);
}

void Mlp::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                         std::size_t tile) const {
  std::byte* const up = Mlp::up(call, at, tile);
  if (gated_) {
    std::byte* const d_active = at.active ? call.workspace + at.workspace : active(call, at, tile);
    down_.backward_input(call, d_active, dy, at.down_product, tile);
    swiglu_backward(call.stream, dtype_, d_active, up, at.active ? nullptr : d_active, rows(call),
                    inner_ / tiles_.size());
  } else {
    down_.backward_gelu(call, d_up(call, at, tile), up, at.active ? nullptr : up, dy, gelu_, at.down_product, tile);
  }
  up_.backward_input(call, dx, d_up(call, at, tile), at.up_product, tile);
}

void Mlp::backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                          std::size_t tile) const {
  down_.backward_matrix(call, active(call, at, tile), dy, tile);
  up_.backward_matrix(call, x, d_up(call, at, tile), tile);
}

void Mlp::backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x,
                            const std::byte* dy) const {
  down_.backward_adapters(call, active(call, at), dy, at.down_product, at.tile_bytes);
  up_.backward_adapters(call, x, d_up(call, at), at.up_product, at.up_bytes);
}

void Mlp::backward_bias(const LayerCall& call, const Arrays& at, const std::byte* dy) const {
  down_.backward_bias(call, dy, nullptr);
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile)
    up_.backward_bias(call, d_up(call, at, tile), nullptr, tile);
}

}  // namespace ranvier::models
