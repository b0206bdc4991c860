#include "models/modules/token_table.hpp"

#include "runtime/base/arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ranvier::models {

TokenTable::TokenTable(const TokenTableOptions& options) : tokens(options.tokens), channels(options.channels) {
  constexpr std::size_t multiple = 64;
  const bool whole = options.tiles == 1;
  tile_rows = runtime::round_up(runtime::ceil_divide(tokens, options.tiles), multiple);
  for (std::size_t first = 0; first < tokens; first += tile_rows) {
    ParameterSpec rows{options.name + ".weight",
                       {std::min(tile_rows, tokens - first), channels},
                       options.initializer,
                       true,
                       tile_rows * channels};
    if (!whole) rows.tile = Tile{{tokens, channels}, first, 0};
    units.push_back({whole ? options.name : fmt::format("{}.{}", options.name, units.size()), {std::move(rows)}});
  }
}

}  // namespace ranvier::models
