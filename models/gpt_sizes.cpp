#include "models/gpt_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::models {

std::optional<std::string> size_problem(const GptOptions& options, const GptSizeNames& names) {
  for (const auto& [name, value] : {std::pair{names.layers, options.layers},
                                    {names.hidden, options.hidden},
                                    {names.heads, options.heads},
                                    {names.vocab_size, options.vocab_size},
                                    {names.sequence_length, options.sequence_length},
                                    {names.tile, options.tile}}) {
    if (value < 1) return fmt::format("{} is {}: it must be at least 1", name, value);
  }
  for (const auto& [name, value] : {std::pair{names.heads, options.heads}, {names.tile, options.tile}}) {
    if (options.hidden % value != 0)
      return fmt::format("{} {} does not divide {} {}: choose a divisor such as {}", name, value, names.hidden,
                         options.hidden, divisor_near(value, options.hidden));
  }
  if (!(options.dropout >= 0 && options.dropout < 1))
    return fmt::format("{} is {}: it must be at least 0 and less than 1", names.dropout, options.dropout);
  return std::nullopt;
}

int divisor_near(int wanted, int whole) {
  int divisor = std::min(wanted, whole);
  while (whole % divisor != 0) --divisor;
  return divisor;
}

std::optional<std::string> tile_problem(std::string_view tile_name, int tile,
                                        std::initializer_list<TiledSize> sizes) {
  std::int64_t all = 0;
  for (const TiledSize& size : sizes) all = std::gcd(all, size.channels);
  for (const TiledSize& size : sizes) {
    if (size.channels % tile != 0)
      return fmt::format("{} {} does not divide {}: choose a divisor such as {}", tile_name, tile, size.name,
                         divisor_near(tile, static_cast<int>(all)));
  }
  return std::nullopt;
}

}  // namespace ranvier::models
