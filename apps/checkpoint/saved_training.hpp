// Finds a checkpoint by path and reads its run and model. Callable from any thread.
#pragma once

#include "models/core/layer.hpp"
#include "models/core/tuning.hpp"
#include "models/families/model.hpp"
#include "offload/checkpoint/manifest.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Returns `path` if it is a checkpoint, otherwise the newest complete checkpoint in that folder. Throws
/// ErrorCode::data if there is none.
[[nodiscard]] std::filesystem::path checkpoint_at(const std::filesystem::path& path);

/// True if `path` is a checkpoint, complete or not.
[[nodiscard]] bool is_checkpoint(const std::filesystem::path& path);

/// Entry of the manifest about its run, numbers as text; empty if absent.
[[nodiscard]] std::string said_of_run(const offload::Manifest& manifest, std::string_view name);
/// Value of a flag of the run; empty if absent.
[[nodiscard]] std::string option_of_run(const offload::Manifest& manifest, std::string_view flag);

/// Model of a checkpoint: configuration, and units with the sizes of the arrays.
struct SavedModel {
  models::ModelConfig config;
  models::Tuning tuning;  ///< parameters that were trained
  std::vector<models::UnitSpec> units;
};
/// Returns none if the checkpoint has no configuration of a known model. Throws ErrorCode::data with `checkpoint` if
/// the arrays contradict the configuration.
[[nodiscard]] std::optional<SavedModel> saved_model(const offload::Manifest& manifest,
                                                    const std::filesystem::path& checkpoint);

}  // namespace ranvier::apps
