// The weights of a checkpoint as files for others. Any thread; blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ranvier::apps {

struct ExportOptions {
  std::filesystem::path folder;  ///< that they go to
  std::uint64_t file_bytes = 0;
  bool overwrite = false;  ///< weights that are there may be replaced
  bool merge = false;      ///< adapters are added to the weights beside them
};

/// Of a training of adapters writes these in PEFT's files, unless they are merged. Otherwise writes weights,
/// config.json and, where the run's tokenizer can still be read, its files; all or nothing of the weights. What was
/// done, in words. Throws ErrorCode::data for a checkpoint that is damaged or of no known model, ErrorCode::usage where
/// weights are there already.
[[nodiscard]] std::string export_weights(const std::filesystem::path& checkpoint, const ExportOptions& options);

}  // namespace ranvier::apps
