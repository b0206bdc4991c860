#include "models/modules/tiles.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::models {

Tiles joined(const Tiles& a, const Tiles& b) {
  Tiles tiles = a;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    TileUnits& tile = tiles[t];
    tile.units.insert(tile.units.end(), b.at(t).units.begin(), b[t].units.end());
    std::sort(tile.units.begin(), tile.units.end());
    tile.units.erase(std::unique(tile.units.begin(), tile.units.end()), tile.units.end());
    tile.trained = tile.trained || b[t].trained;
  }
  return tiles;
}

LayerPhases parts_of(std::span<const UnitSpec> units, std::initializer_list<const Tiles*> products) {
  std::vector<bool> is_tile(units.size(), false);
  std::vector<const Tiles*> tiled;
  for (const Tiles* tiles : products) {
    if (tiles->size() == 1) continue;
    tiled.push_back(tiles);
    for (const TileUnits& tile : *tiles)
      for (const std::size_t unit : tile.units) is_tile[unit] = true;
  }
  expect(tiled.empty() || tiled.size() == products.size(), "{} of {} products are in tiles, the others whole",
         tiled.size(), products.size());
  std::vector<std::size_t> rest;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    if (!is_tile[unit]) rest.push_back(unit);
  if (tiled.empty()) return {{rest}, {rest}, {rest}};

  LayerPhases parts;
  const auto with_rest = [&](std::vector<std::size_t> part) {
    part.insert(part.end(), rest.begin(), rest.end());
    return part;
  };
  for (const Tiles* tiles : tiled)
    for (const TileUnits& tile : *tiles) parts.forward.push_back(with_rest(tile.units));
  // Frozen tiles have no phase of their own in backward_weight; their units belong to the last one.
  std::reverse(tiled.begin(), tiled.end());
  std::vector<std::size_t> last = rest;
  for (const Tiles* tiles : tiled) {
    for (const TileUnits& tile : *tiles) {
      parts.backward_input.push_back(with_rest(tile.units));
      if (tile.trained) {
        parts.backward_weight.push_back(tile.units);
      } else {
        last.insert(last.end(), tile.units.begin(), tile.units.end());
      }
    }
  }
  parts.backward_weight.push_back(std::move(last));
  return parts;
}

}  // namespace ranvier::models
