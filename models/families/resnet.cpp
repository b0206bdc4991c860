#include "models/families/resnet.hpp"

#include "models/families/family_config.hpp"
#include "models/weights/safetensors.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace ranvier::models {
namespace {

constexpr ResnetOptions resnet(std::array<int, ResnetOptions::rows> blocks, int width) {
  return {.blocks = blocks, .width = width};
}

/// Sizes for CIFAR-10.
constexpr ResnetOptions for_cifar() {
  ResnetOptions options = resnet({2, 2, 2, 2}, 1);
  options.image_size = 32;
  options.classes = 10;
  return options;
}

/// One dimension of a tensor's shape.
int extent(const Safetensors& weights, const std::string& name, std::size_t dimensions, std::size_t which) {
  const StoredTensor* const tensor = weights.find(name);
  const bool fits = tensor != nullptr && tensor->shape.size() == dimensions && tensor->shape[which] > 0 &&
                    tensor->shape[which] < (std::size_t{1} << 30);
  if (!fits)
    fail(ErrorCode::data,
         "{}: tensor '{}' with {} dimensions is missing; use a wide residual network with bottleneck blocks",
         weights.path().string(), name, dimensions);
  return static_cast<int>(tensor->shape[which]);
}

}  // namespace

// Sizes.

std::span<const SizeField<ResnetOptions>> ResnetOptions::sizes() {
  static constexpr SizeField<ResnetOptions> all[] = {
      {Size::hidden, &ResnetOptions::channels, "hidden_size"},
      {Size::width, &ResnetOptions::width, "width_factor"},
      {Size::image_size, &ResnetOptions::image_size, "image_size"},
      {Size::classes, &ResnetOptions::classes, "num_labels"},
  };
  return all;
}

std::span<const NamedSizes<ResnetOptions>> ResnetOptions::named() {
  static constexpr NamedSizes<ResnetOptions> all[] = {
      {"wide-resnet", false, for_cifar()},
      {"wide-resnet-50-2", true, resnet({3, 4, 6, 3}, 2)},
      {"wide-resnet-101-2", true, resnet({3, 4, 23, 3}, 2)},
      {"wide-resnet-3b", true, resnet({6, 8, 46, 6}, 8)},
  };
  return all;
}

std::optional<std::string> ResnetOptions::problem(const SizeNames& names) const {
  constexpr int most = 1 << 20;  // maximum of each size: products of sizes fit 64 bits
  for (const int count : blocks)
    if (count < 1 || count > most)
      return fmt::format("{} is out of range: {}; each of the four groups has 1 to {} blocks", names("blocks"),
                         fmt::join(blocks, ","), most);
  for (const auto& [size, field, key, least] : sizes())
    if (this->*field > most)
      return fmt::format("{} is too large: {}; use at most {}", names(field_name(size)), this->*field, most);
  constexpr std::int64_t max_channels = 1 << 24;
  if (std::int64_t{channels} * std::max(width, ResnetOptions::expansion) * 8 > max_channels)
    return fmt::format("{} {} and {} {} need more than {} channels; decrease one of the two", names("hidden"),
                       channels, names("width"), width, max_channels);
  return std::nullopt;
}

// config.json and tensors.

FamilyConfig<ResnetOptions> ResnetOptions::read(const ConfigFile& config) {
  ResnetOptions options;
  const boost::json::value* const blocks = config.find("blocks");
  const auto* const counts = blocks == nullptr ? nullptr : blocks->if_array();
  if (counts == nullptr || counts->size() != options.blocks.size())
    config.refuse("blocks", "four block groups, as in [3, 4, 6, 3]");
  for (std::size_t row = 0; row < options.blocks.size(); ++row) {
    const auto* const count = (*counts)[row].if_int64();
    if (count == nullptr || *count < 1 || *count > 1 << 30)
      config.refuse("blocks", "four block groups, as in [3, 4, 6, 3]");
    options.blocks[row] = static_cast<int>(*count);
  }
  for (const auto& [size, field, key, least] : sizes()) options.*field = config.size(key);
  expect_sizes(options, config);
  return {options};
}

std::string ResnetOptions::config_json(const std::string& like) const {
  constexpr std::string_view from_nothing = R"({
    "model_type": "wide_resnet", "blocks": [], "hidden_size": 0, "width_factor": 0, "image_size": 0, "num_labels": 0})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("model_type", "\"wide_resnet\"");
  members.set("blocks", fmt::format("[{}]", fmt::join(blocks, ", ")));
  set_sizes(members, *this);
  return members.json();
}

std::optional<ResnetOptions> ResnetOptions::stored(const Safetensors& weights, const ResnetOptions* config,
                                                   std::optional<int>) {
  if (config != nullptr || weights.find("layer1.0.conv3.weight") == nullptr) return std::nullopt;
  ResnetOptions options;
  options.channels = extent(weights, "conv1.weight", 4, 0);
  options.classes = extent(weights, "fc.weight", 2, 0);
  const int inner = extent(weights, "layer1.0.conv2.weight", 4, 0);
  if (inner % options.channels != 0)
    fail(ErrorCode::data,
         "{}: unsupported width: 'layer1.0.conv2.weight' has {} channels, not a multiple of the {} of "
         "'conv1.weight'",
         weights.path().string(), inner, options.channels);
  options.width = inner / options.channels;
  options.image_size = extent(weights, "conv1.weight", 4, 2) == 3 ? 32 : 224;
  for (std::size_t row = 0; row < options.blocks.size(); ++row) {
    int& blocks = options.blocks[row] = 0;
    while (weights.find(fmt::format("layer{}.{}.conv1.weight", row + 1, blocks)) != nullptr) ++blocks;
  }
  if (const auto problem = size_problem(options, [](std::string_view field) { return std::string(field); }))
    fail(ErrorCode::data, "{}: {}", weights.path().string(), *problem);
  return options;
}

}  // namespace ranvier::models
