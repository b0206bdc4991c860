#include "models/families/resnet_config.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::string_view type = "wide_resnet";
constexpr ResnetSizeNames keys{.blocks = "'blocks'",
                               .channels = "'hidden_size'",
                               .width = "'width_factor'",
                               .image_size = "'image_size'",
                               .classes = "'num_labels'"};

/// One dimension of a tensor's shape.
int extent(const Safetensors& weights, const std::string& name, std::size_t dimensions, std::size_t which) {
  const StoredTensor* const tensor = weights.find(name);
  const bool fits = tensor != nullptr && tensor->shape.size() == dimensions && tensor->shape[which] > 0 &&
                    tensor->shape[which] < (std::size_t{1} << 30);
  if (!fits)
    fail(ErrorCode::data,
         "{}: tensor '{}' with {} dimensions is missing; use a wide residual network with "
         "bottleneck blocks",
         weights.path().string(), name, dimensions);
  return static_cast<int>(tensor->shape[which]);
}

}  // namespace

bool is_resnet_type(std::string_view model_type) { return model_type == type; }

ResnetOptions read_resnet_config(const ConfigFile& config) {
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
  options.channels = config.size("hidden_size");
  options.width = config.size("width_factor");
  options.image_size = config.size("image_size");
  options.classes = config.size("num_labels");
  if (const auto problem = size_problem(options, keys))
    fail(ErrorCode::data, "{}: {}", config.path().string(), *problem);
  return options;
}

std::string resnet_config_json(const ResnetOptions& options, const std::string& like) {
  constexpr std::string_view from_nothing = R"({
    "model_type": "wide_resnet", "blocks": [], "hidden_size": 0, "width_factor": 0, "image_size": 0, "num_labels": 0})";
  JsonMembers members(like.empty() ? from_nothing : std::string_view(like));
  members.set("model_type", fmt::format("\"{}\"", type));
  members.set("blocks", fmt::format("[{}]", fmt::join(options.blocks, ", ")));
  for (const auto& [key, value] : {std::pair{"hidden_size", options.channels},
                                   {"width_factor", options.width},
                                   {"image_size", options.image_size},
                                   {"num_labels", options.classes}})
    members.set(key, fmt::format("{}", value));
  return members.json();
}

std::optional<ResnetOptions> stored_resnet(const Safetensors& weights) {
  if (weights.find("layer1.0.conv3.weight") == nullptr) return std::nullopt;
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
  if (const auto problem = size_problem(options))
    fail(ErrorCode::data, "{}: {}", weights.path().string(), *problem);
  return options;
}

}  // namespace ranvier::models
