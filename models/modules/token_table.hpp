// A table with a row per token, which embedding and head of a model may share; both declare it with these words. Tiles
// have as many rows each, at least 64, so there may be fewer than were asked for.
#pragma once

#include "models/layer.hpp"

#include <string>
#include <vector>

namespace ranvier::models {

struct TokenTableOptions {
  std::string name;          ///< of the unit; the parameter is its .weight, tiles are numbered units
  std::size_t tokens = 0;    ///< V
  std::size_t channels = 0;  ///< C
  std::size_t tiles = 1;
  Initializer initializer;
};

struct TokenTable {
  explicit TokenTable(const TokenTableOptions& options);

  std::vector<UnitSpec> units;  ///< one, or its tiles
  std::size_t tile_rows = 0;    ///< as stored: a multiple of 64, of which the last tile may use fewer
  std::size_t tokens = 0;
  std::size_t channels = 0;

  [[nodiscard]] std::size_t tiles() const { return units.size(); }
  [[nodiscard]] std::size_t stored_rows() const { return tiles() * tile_rows; }
};

}  // namespace ranvier::models
