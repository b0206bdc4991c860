#include "models/core/size_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ranvier::models {

std::optional<std::string> min_problem(int least, std::initializer_list<NamedSize> sizes) {
  for (const auto& [name, value] : sizes)
    if (value < least) return fmt::format("{} is too small: {}; use at least {}", name, value, least);
  return std::nullopt;
}

std::optional<std::string> divisor_problem(const NamedSize& size, const NamedSize& whole) {
  if (whole.value % size.value == 0) return std::nullopt;
  return fmt::format("{} {} does not divide {} {}; use a divisor such as {}", size.name, size.value, whole.name,
                     whole.value, divisor_near(size.value, whole.value));
}

std::optional<std::string> dropout_problem(std::string_view name, float rate) {
  if (rate >= 0 && rate < 1) return std::nullopt;
  return fmt::format("{} is out of range: {}; use at least 0 and less than 1", name, rate);
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
      return fmt::format("{} {} does not divide {}; use a divisor such as {}", tile_name, tile, size.name,
                         divisor_near(tile, static_cast<int>(all)));
  }
  return std::nullopt;
}

}  // namespace ranvier::models
