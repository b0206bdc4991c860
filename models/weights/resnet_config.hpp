// The config.json of wide residual networks. torchvision, whose weights they are, writes none, so that the keys are our
// own, and what tensors show needs no file. Any thread.
#pragma once

#include "models/resnet.hpp"
#include "models/weights/config_file.hpp"
#include "models/weights/safetensors.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

[[nodiscard]] bool is_resnet_type(std::string_view model_type);

/// Throws ErrorCode::data, naming file and key, for values that make no model.
[[nodiscard]] ResnetOptions read_resnet_config(const ConfigFile& config);

/// As read_resnet_config() reads it. `like`: a file of the same model, whose other keys stay; empty: none.
[[nodiscard]] std::string resnet_config_json(const ResnetOptions& options, const std::string& like);

/// The sizes that tensors with torchvision's names show; none where they are of another model. Images are taken for 224
/// pixels across, or for 32 behind a 3 × 3 stem. Throws ErrorCode::data for shapes that no such model has.
[[nodiscard]] std::optional<ResnetOptions> stored_resnet(const Safetensors& weights);

}  // namespace ranvier::models
