#include "models/images/synthetic_set.hpp"

#include "runtime/base/philox.hpp"

#include <algorithm>
#include <array>

namespace ranvier::models {
namespace {

enum class Drawn : std::uint32_t { label, shade, noise };

/// Four random words for `index` of image or class `n`.
std::array<std::uint32_t, 4> draw(Drawn what, std::int64_t n, std::uint32_t index) {
  const auto number = static_cast<std::uint64_t>(n);
  return runtime::philox({}, {index, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                              static_cast<std::uint32_t>(what)});
}

}  // namespace

std::int32_t SyntheticSet::label(std::int64_t n) const {
  return static_cast<std::int32_t>(draw(Drawn::label, n, 0)[0] % static_cast<std::uint32_t>(classes_));
}

void SyntheticSet::read(std::int64_t n, std::uint8_t* to) const {
  const auto shades = draw(Drawn::shade, label(n), 0);
  const std::size_t plane = bytes() / 3;
  for (std::size_t i = 0; i < bytes(); i += 16) {
    const auto words = draw(Drawn::noise, n, static_cast<std::uint32_t>(i / 16));
    for (std::size_t at = i; at < std::min(i + 16, bytes()); ++at) {
      const std::uint32_t noise = words[(at - i) / 4] >> 8 * ((at - i) % 4) & 0xffu;
      to[at] = static_cast<std::uint8_t>((noise + (shades[at / plane] & 0xffu)) / 2);
    }
  }
}

}  // namespace ranvier::models
