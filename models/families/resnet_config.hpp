// The config.json of wide residual networks. torchvision writes none, so its keys are Ranvier's own; sizes that
// tensors show need no file. Any thread.
#pragma once

#include "models/families/resnet.hpp"
#include "models/weights/config_file.hpp"
#include "models/weights/safetensors.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

[[nodiscard]] bool is_resnet_type(std::string_view model_type);

/// Throws ErrorCode::data, naming file and key, for invalid values.
[[nodiscard]] ResnetOptions read_resnet_config(const ConfigFile& config);

/// The config.json for read_resnet_config(). `like`: config of the same model, whose other keys are kept; empty:
/// none.
[[nodiscard]] std::string resnet_config_json(const ResnetOptions& options, const std::string& like);

/// Sizes from the shapes of tensors with torchvision's names; none if they belong to another model. Assumes images of
/// 224 pixels, or 32 with a 3 × 3 stem. Throws ErrorCode::data for impossible shapes.
[[nodiscard]] std::optional<ResnetOptions> stored_resnet(const Safetensors& weights);

}  // namespace ranvier::models
