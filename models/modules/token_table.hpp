// Table with a row per token. Tied embedding and head declare it identically. Tiles have equally many rows, at least
// 64, so there may be fewer tiles than requested.
#pragma once

#include "models/core/layer.hpp"

#include <string>
#include <vector>

namespace ranvier::models {

struct TokenTableOptions {
  std::string name;          ///< name of the unit; the parameter is its .weight, tiles are numbered units
  std::size_t tokens = 0;    ///< V
  std::size_t channels = 0;  ///< C
  std::size_t tiles = 1;
  Initializer initializer;
};

struct TokenTable {
  explicit TokenTable(const TokenTableOptions& options);

  std::vector<UnitSpec> units;  ///< the table, or one unit per tile
  std::size_t tile_rows = 0;    ///< stored rows per tile, a multiple of 64; the last tile may use fewer
  std::size_t tokens = 0;
  std::size_t channels = 0;

  [[nodiscard]] std::size_t tiles() const { return units.size(); }
  [[nodiscard]] std::size_t stored_rows() const { return tiles() * tile_rows; }
};

}  // namespace ranvier::models
