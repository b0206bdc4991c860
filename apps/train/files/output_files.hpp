// What a run writes, seen before anything is written: no two outputs in one place, none over what the run reads,
// all of them where they can be made and with the space that they take. Rank 0.
#pragma once

#include "apps/train/options/train_options.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace ranvier::apps {

/// File that --save means: a path with an extension of weights files, or else model.safetensors in that folder.
[[nodiscard]] std::filesystem::path weights_path(const std::string& save);

/// Where the model's config.json goes; none: nowhere, since beside weights of another name it could be taken for
/// that of other weights.
[[nodiscard]] std::optional<std::filesystem::path> config_path(const std::string& save);

/// Throws ErrorCode::usage, naming both flags, where an output would fall on another, on an input (--overwrite lets
/// --save replace the weights of --init-from), or into a folder of data that the next run would read; also where
/// --save means what cannot be meant. Links, hard ones too, are followed.
void check_outputs(const TrainOptions& options);

/// Throws ErrorCode::usage, naming flag and file, if --save, --save-every or --trace would replace existing files and
/// --overwrite is not given. For runs that do not resume: a resumed run replaces its own.
void check_replaced(const TrainOptions& options);

/// Makes the folder of --save, and removes what killed runs left of these outputs. Throws ErrorCode::io unless
/// every output can be made.
void prepare_outputs(const TrainOptions& options);

/// Throws ErrorCode::io, with what is needed and what is free, unless `bytes` of weights fit beside what is there.
void check_space(const std::string& save, std::size_t bytes);

}  // namespace ranvier::apps
