// Tiles of a layer's matrices (memory-centric tiling, ZeRO-Infinity §5.1.3), and which of the layer's computations
// belong to which part of a call (Layer::parts). Each tile has units of its own and a part of a call; everything else,
// the layer's norms and biases, is there in all parts. A layer writes its formula once, whole or in tiles:
//
//   LayerPhases parts() const override { return parts_of(units_, {&qkv_.tiles(), &out_.tiles()}); }
//
//   void forward(const LayerCall& call, …) override {
//     PhaseWalk walk(call);
//     walk.once([&] { norm_.forward(call, …); });
//     walk.each(qkv_.tiles(), [&](std::size_t tile) { qkv_.forward(call, …, tile); });
//     walk.once([&] { attention_.forward(call, …); });
//     walk.each(out_.tiles(), [&](std::size_t tile) { out_.forward(call, …, tile); });
//   }
//
// A layer whose products are whole has one part, and each of them one tile. Any thread.
#pragma once

#include "models/layer.hpp"

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

namespace ranvier::models {

struct TileUnits {
  std::vector<std::size_t> units;  ///< of the layer, with the tile's weights
  bool trained = false;            ///< whether one of them is
};

/// Of a product, or of several whose tiles are computed together; one: they are whole.
using Tiles = std::vector<TileUnits>;

/// Those of two products tile by tile.
[[nodiscard]] Tiles joined(const Tiles& a, const Tiles& b);

/// The parts of a layer's calls whose products, all whole or all in tiles, come in this order in forward, and in the
/// opposite one in the backward calls. Weights' gradients come first, tile by tile, then all others.
[[nodiscard]] LayerPhases parts_of(std::span<const UnitSpec> units, std::initializer_list<const Tiles*> products);

/// Runs those of a call's computations that belong to its part.
class PhaseWalk {
 public:
  explicit PhaseWalk(const LayerCall& call) noexcept : part_(call.part) {}

  /// What is done once: with the tile before it, or with the first one.
  template <typename F>
  void once(F&& f) const {
    if (part_ == (begun_ == 0 ? 0 : begun_ - 1)) f();
  }

  /// f(tile) for each tile, in order.
  template <typename F>
  void each(const Tiles& tiles, F&& f) {
    if (tiles.size() == 1) return once([&] { f(std::size_t{0}); });
    for (std::size_t tile = 0; tile < tiles.size(); ++tile)
      if (begun_++ == part_) f(tile);
  }

  /// In backward_weight, of the tiles that are trained. With the first of them prepare().
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

  /// In backward_weight, after all products: gradients of what has no tiles.
  template <typename F>
  void rest(F&& f) const {
    if (part_ == begun_) f();
  }

 private:
  std::size_t part_, begun_ = 0;
};

}  // namespace ranvier::models
