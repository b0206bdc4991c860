#include "models/families/family.hpp"

#include "runtime/base/arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace ranvier::models {
namespace {

using enum Size;

constexpr std::array size_names = {
    std::pair{layers, std::string_view("layers")},
    std::pair{hidden, std::string_view("hidden")},
    std::pair{heads, std::string_view("heads")},
    std::pair{kv_heads, std::string_view("kv-heads")},
    std::pair{head_size, std::string_view("head-size")},
    std::pair{ffn_size, std::string_view("ffn-size")},
    std::pair{vocab_size, std::string_view("vocab-size")},
    std::pair{sequence_length, std::string_view("sequence-length")},
    std::pair{window, std::string_view("window")},
    std::pair{tile, std::string_view("tile")},
    std::pair{width, std::string_view("width")},
    std::pair{image_size, std::string_view("image-size")},
    std::pair{classes, std::string_view("classes")},
};

}  // namespace

std::span<const std::pair<Size, std::string_view>> named_sizes() noexcept { return size_names; }

std::string quoted_field(std::string_view field) { return fmt::format("`{}`", field); }

std::string field_name(Size size) {
  const auto found =
      std::find_if(size_names.begin(), size_names.end(), [&](const auto& named) { return named.first == size; });
  std::string name(found->second);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

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

int default_heads(int hidden) { return divisor_near(std::max(1, hidden / 64), hidden); }

int inner_width(int hidden, int numerator, int denominator, int multiple) {
  const std::int64_t wanted = runtime::round_up(std::int64_t{hidden} * numerator / denominator, multiple);
  return static_cast<int>(std::min<std::int64_t>(wanted, 1 << 30));
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
