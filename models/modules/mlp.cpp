#include "models/modules/mlp.hpp"

#include <algorithm>

namespace ranvier::models {

Mlp::Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options)
    : inner_(options.inner),
      gelu_(options.gelu),
      dtype_(options.precision.compute),
      up_(builder, unit,
          {.tensors = {{options.up.name, options.inner}},
           .in = options.channels,
           .layout = options.layout,
           .bias = true,
           .initializer = options.up.initializer,
           .precision = options.precision,
           .cut = {options.tiles, LinearOptions::Cut::Along::outputs_apart}}),
      down_(builder, unit,
            {.tensors = {{options.down.name, options.channels}},
             .in = options.inner,
             .layout = options.layout,
             .bias = true,
             .initializer = options.down.initializer,
             .precision = options.precision,
             .cut = {options.tiles, LinearOptions::Cut::Along::inputs}}),
      tiles_(joined(up_.tiles(), down_.tiles())) {}

Mlp::Arrays Mlp::plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                      const MicrobatchShape& shape, std::size_t scratch) const {
  const std::size_t N = rows(shape);
  const bool saves = shape.saved == SavedActivations::all;
  MemoryLayout tile;
  tile.add(N * inner_ / tiles_.size(), size_of(dtype_));
  Arrays at;
  at.inner = saved.add(tiles_.size(), tile.bytes());
  if (saves) at.active = saved.add(tiles_.size(), tile.bytes());
  at.d_inner = deferred.add(tiles_.size(), tile.bytes());
  at.workspace_bytes = saves ? 0 : tile.bytes();
  at.workspace = workspace.add(1, at.workspace_bytes);
  at.tile_bytes = tile.bytes();
  at.up = up_.plan(saved, deferred, workspace, N, scratch);
  at.down = down_.plan(saved, deferred, workspace, N, scratch);
  return at;
}

std::size_t Mlp::scratch_bytes(std::size_t rows) const {
  return std::max(up_.scratch_bytes(rows), down_.scratch_bytes(rows));
}

void Mlp::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                  const std::byte* addend, std::size_t tile) const {
  std::byte* const inner = call.saved + at.inner + tile * at.tile_bytes;
  std::byte* const active = at.active ? Mlp::active(call, at, tile) : call.workspace + at.workspace;
  up_.forward_gelu(call, inner, active, x, gelu_, at.up, tile);
  down_.forward_add(call, y, active, addend, at.down, tile);
}

void Mlp::decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide, std::byte*) const {
  up_.decode(call, wide, x);
  gelu_forward(call.stream, dtype_, wide, wide, rows(call) * inner_, gelu_);
  down_.decode(call, y, wide);
}

void Mlp::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                         std::size_t tile) const {
  std::byte* const inner = call.saved + at.inner + tile * at.tile_bytes;
  std::byte* const d_inner = call.deferred + at.d_inner + tile * at.tile_bytes;
  down_.backward_gelu(call, d_inner, inner, at.active ? nullptr : inner, dy, gelu_, at.down, tile);
  up_.backward_input(call, dx, d_inner, at.up, tile);
}

void Mlp::backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                          std::size_t tile) const {
  down_.backward_matrix(call, active(call, at, tile), dy, tile);
  up_.backward_matrix(call, x, call.deferred + at.d_inner + tile * at.tile_bytes, tile);
}

void Mlp::backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x,
                            const std::byte* dy) const {
  down_.backward_adapters(call, active(call, at), dy, at.down, at.tile_bytes);
  up_.backward_adapters(call, x, call.deferred + at.d_inner, at.up, at.tile_bytes);
}

void Mlp::backward_bias(const LayerCall& call, const Arrays& at, const std::byte* dy) const {
  down_.backward_bias(call, dy, nullptr);
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile)
    up_.backward_bias(call, call.deferred + at.d_inner + tile * at.tile_bytes, nullptr, tile);
}

}  // namespace ranvier::models
