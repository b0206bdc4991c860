#include "models/modules/gated_mlp.hpp"

#include "models/ops/swiglu.hpp"

#include <algorithm>

namespace ranvier::models {

GatedMlp::GatedMlp(UnitBuilder& builder, std::size_t unit, const GatedMlpOptions& options)
    : inner_(options.inner),
      dtype_(options.precision.compute),
      gate_up_(builder, unit,
               {.tensors = {{options.gate, options.inner}, {options.up, options.inner}},
                .in = options.channels,
                .initializer = options.initializer,
                .precision = options.precision,
                .cut = {options.tiles, LinearOptions::Cut::Along::outputs_apart}}),
      down_(builder, unit,
            {.tensors = {{options.down, options.channels}},
             .in = options.inner,
             .initializer = options.initializer,
             .precision = options.precision,
             .cut = {options.tiles, LinearOptions::Cut::Along::inputs}}),
      tiles_(joined(gate_up_.tiles(), down_.tiles())) {}

GatedMlp::Arrays GatedMlp::plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                                const MicrobatchShape& shape, std::size_t scratch) const {
  const std::size_t N = rows(shape), S = tiles_.size(), element = size_of(dtype_);
  MemoryLayout wide, tile;
  wide.add(N * 2 * inner_ / S, element);
  tile.add(N * inner_ / S, element);
  Arrays at;
  at.gate_up = saved.add(S, wide.bytes());
  if (shape.saved == SavedActivations::all) {
    at.saved = saved.add(S, tile.bytes());
  } else {
    at.inner = deferred.add(S, tile.bytes());
  }
  at.workspace_bytes = tile.bytes();
  at.workspace = workspace.add(1, tile.bytes());
  at.wide_bytes = wide.bytes();
  at.tile_bytes = tile.bytes();
  at.gate_up_product = gate_up_.plan(saved, deferred, workspace, N, scratch);
  at.down_product = down_.plan(saved, deferred, workspace, N, scratch);
  return at;
}

std::size_t GatedMlp::scratch_bytes(std::size_t rows) const {
  return std::max(gate_up_.scratch_bytes(rows), down_.scratch_bytes(rows));
}

void GatedMlp::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                       const std::byte* addend, std::size_t tile) const {
  std::byte* const gate_up = call.saved + at.gate_up + tile * at.wide_bytes;
  std::byte* const inner = at.saved ? GatedMlp::inner(call, at, tile) : call.workspace + at.workspace;
  gate_up_.forward(call, gate_up, x, at.gate_up_product, tile);
  swiglu_forward(call.stream, dtype_, inner, gate_up, rows(call), inner_ / tiles_.size());
  down_.forward_add(call, y, inner, addend, at.down_product, tile);
}

void GatedMlp::decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide,
                      std::byte* narrow) const {
  gate_up_.decode(call, wide, x);
  swiglu_forward(call.stream, dtype_, narrow, wide, rows(call), inner_);
  down_.decode(call, y, narrow);
}

void GatedMlp::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                              std::size_t tile) const {
  std::byte* const gate_up = call.saved + at.gate_up + tile * at.wide_bytes;
  std::byte* const d_inner = at.saved ? call.workspace + at.workspace : inner(call, at, tile);
  down_.backward_input(call, d_inner, dy, at.down_product, tile);
  swiglu_backward(call.stream, dtype_, d_inner, gate_up, at.saved ? nullptr : d_inner, rows(call),
                  inner_ / tiles_.size());
  gate_up_.backward_input(call, dx, gate_up, at.gate_up_product, tile);
}

void GatedMlp::backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                               std::size_t tile) const {
  down_.backward_matrix(call, inner(call, at, tile), dy, tile);
  gate_up_.backward_matrix(call, x, call.saved + at.gate_up + tile * at.wide_bytes, tile);
}

void GatedMlp::backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x,
                                 const std::byte* dy) const {
  down_.backward_adapters(call, inner(call, at), dy, at.down_product, at.tile_bytes);
  gate_up_.backward_adapters(call, x, call.saved + at.gate_up, at.gate_up_product, at.wide_bytes);
}

}  // namespace ranvier::models
