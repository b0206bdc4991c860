// Tiles of a layer's matrices (memory-centric tiling, ZeRO-Infinity §5.1.3), and the phases of a call that use them
// (Layer::parts). Each tile has its own units and its own phase of a call. All other parameters, such as norms and
// biases, are available in every phase. A layer whose matrices are untiled has one phase, and each matrix one tile. Any
// thread.
#pragma once

#include "models/core/layer.hpp"

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

namespace ranvier::models {

struct TileUnits {
  std::vector<std::size_t> units;  ///< the layer's units that contain the tile's weights
  bool trained = false;            ///< whether any of these units is trained
};

/// Tiles of a matrix, or of several that are computed together; a single tile: not tiled.
using Tiles = std::vector<TileUnits>;

/// Tiles with the units of both arguments, tile by tile.
[[nodiscard]] Tiles joined(const Tiles& a, const Tiles& b);

/// Phases of a layer's calls. `products`: its matrices in forward order, all tiled or all untiled; backward calls use
/// the opposite order. backward_weight starts with the weights, tile by tile, then does all other parameters.
[[nodiscard]] LayerPhases parts_of(std::span<const UnitSpec> units, std::initializer_list<const Tiles*> products);

/// Runs the computations that belong to a call's phase. A layer writes its formula once, tiled or not:
///
///   void forward(const LayerCall& call, …) override {
///     PhaseWalk walk(call);
///     walk.once([&] { norm_.forward(call, …); });
///     walk.each(qkv_.tiles(), [&](std::size_t tile) { qkv_.forward(call, …, tile); });
///     walk.once([&] { attention_.forward(call, …); });
///     walk.each(out_.tiles(), [&](std::size_t tile) { out_.forward(call, …, tile); });
///   }
class PhaseWalk {
 public:
  explicit PhaseWalk(const LayerCall& call) noexcept : part_(call.part) {}

  /// Calls f() once: in the phase of the preceding tile, or of the first tile.
  template <typename F>
  void once(F&& f) const {
    if (part_ == (begun_ == 0 ? 0 : begun_ - 1)) f();
  }

  /// Calls f(tile) for each tile, in order.
  template <typename F>
  void each(const Tiles& tiles, F&& f) {
    if (tiles.size() == 1) return once([&] { f(std::size_t{0}); });
    for (std::size_t tile = 0; tile < tiles.size(); ++tile)
      if (begun_++ == part_) f(tile);
  }

  /// In backward_weight: calls f(tile) for each trained tile, and prepare() before the first.
  template <typename Prepare, typename F>
  void each_trained(const Tiles& tiles, Prepare&& prepare, F&& f) {
    bool prepared = false;
    for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
      if (!tiles[tile].trained) continue;
      const bool here = part_ == (tiles.size() == 1 ? 0 : begun_++);
      if (here && !prepared) prepare();
      if (here) f(tile);
      prepared = true;
    }
  }

  /// In backward_weight, after all matrices: gradients of untiled parameters.
  template <typename F>
  void rest(F&& f) const {
    if (part_ == begun_) f();
  }

 private:
  std::size_t part_, begun_ = 0;
};

}  // namespace ranvier::models
