// A checkpoint as people and tools look at it: which one a path means, the run that wrote it, the model whose units its
// arrays are. Any thread.
#pragma once

#include "models/layer.hpp"
#include "models/tuning.hpp"
#include "models/weights/model_config.hpp"
#include "offload/checkpoint/manifest.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// The checkpoint that `path` is or, of a folder of them, its newest whole one. Throws ErrorCode::data where there is
/// none.
[[nodiscard]] std::filesystem::path checkpoint_at(const std::filesystem::path& path);

/// Whether `path` is a checkpoint itself, whole or not.
[[nodiscard]] bool is_checkpoint(const std::filesystem::path& path);

/// What the run said of itself under this name, numbers as text; empty: nothing.
[[nodiscard]] std::string said_of_run(const offload::Manifest& manifest, std::string_view name);
/// The value of a flag of that run; empty: there is none.
[[nodiscard]] std::string option_of_run(const offload::Manifest& manifest, std::string_view flag);

/// The model: its configuration, and units with the sizes of the arrays.
struct SavedModel {
  models::ModelConfig config;
  models::Tuning tuning;  ///< what of it was trained
  std::vector<models::UnitSpec> units;
};
/// None where the checkpoint has no configuration of a model that is known here. Throws ErrorCode::data, naming
/// `checkpoint`, for one that its arrays contradict.
[[nodiscard]] std::optional<SavedModel> saved_model(const offload::Manifest& manifest,
                                                    const std::filesystem::path& checkpoint);

}  // namespace ranvier::apps
