#include "models/families/resnet.hpp"

#include "models/core/expect_sizes.hpp"
#include "models/families/resnet_layers.hpp"
#include "runtime/base/arithmetic.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ranvier::models {
namespace {

constexpr ResnetOptions resnet(std::array<int, ResnetOptions::rows> blocks, int width) {
  return {.blocks = blocks, .width = width};
}

/// Sizes for CIFAR-10.
constexpr ResnetOptions own() {
  ResnetOptions options = resnet({2, 2, 2, 2}, 1);
  options.image_size = 32;
  options.classes = 10;
  return options;
}

constexpr int most = 1 << 20;  // maximum of each size: products of sizes fit 64 bits

}  // namespace

const std::vector<NamedResnet>& named_resnets() {
  static const std::vector<NamedResnet> all{
      {"wide-resnet", false, own()},
      {"wide-resnet-50-2", true, resnet({3, 4, 6, 3}, 2)},
      {"wide-resnet-101-2", true, resnet({3, 4, 23, 3}, 2)},
      {"wide-resnet-3b", true, resnet({6, 8, 46, 6}, 8)},
  };
  return all;
}

std::optional<std::string> size_problem(const ResnetOptions& options, const ResnetSizeNames& names) {
  for (const int count : options.blocks)
    if (count < 1 || count > most)
      return fmt::format("{} is out of range: {}; each of the four groups has 1 to {} blocks", names.blocks,
                         fmt::join(options.blocks, ","), most);
  for (const auto& [name, value] : {std::pair{names.channels, options.channels},
                                    {names.width, options.width},
                                    {names.image_size, options.image_size},
                                    {names.classes, options.classes}})
    if (value < 1 || value > most) return fmt::format("{} is out of range: {}; use 1 to {}", name, value, most);
  constexpr std::int64_t max_channels = 1 << 24;
  if (std::int64_t{options.channels} * std::max(options.width, ResnetOptions::expansion) * 8 > max_channels)
    return fmt::format("{} {} and {} {} need more than {} channels; decrease one of the two", names.channels,
                       options.channels, names.width, options.width, max_channels);
  return std::nullopt;
}

Architecture make_resnet(const ResnetOptions& options, const Tuning& tuning) {
  expect_sizes(options);
  Architecture model;
  model.name = fmt::format("wide-resnet {} × {}, width {}, images of {} × {}", fmt::join(options.blocks, "-"),
                           options.channels, options.width, options.image_size, options.image_size);
  model.positions = 1;
  model.precision = options.precision;
  model.layers.push_back(make_resnet_stem(options, tuning));
  std::size_t in = static_cast<std::size_t>(options.channels), size = resnet_stem_size(options);
  for (std::size_t row = 0; row < ResnetOptions::rows; ++row) {
    const std::size_t channels = static_cast<std::size_t>(options.channels) << row;
    for (int block = 0; block < options.blocks[row]; ++block) {
      const std::size_t stride = block == 0 && row > 0 ? 2 : 1;
      const ResnetBlockShape place{.name = fmt::format("layer{}.{}", row + 1, block),
                                   .in = in,
                                   .inner = channels * static_cast<std::size_t>(options.width),
                                   .out = channels * ResnetOptions::expansion,
                                   .size = size,
                                   .stride = stride};
      model.layers.push_back(make_resnet_block(place, options.precision, tuning));
      in = place.out;
      size = runtime::ceil_divide(size, stride);
    }
  }
  model.layers.push_back(make_resnet_head(options, in, size, tuning));
  return model;
}

}  // namespace ranvier::models
