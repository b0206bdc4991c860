// Exports weights of a checkpoint in Hugging Face's formats. Callable from any thread; blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ranvier::apps {

struct ExportOptions {
  std::filesystem::path folder;  ///< output folder
  std::uint64_t file_bytes = 0;
  bool overwrite = false;  ///< replaces existing weights
  bool merge = false;      ///< adds adapters to the weights that they adapt
};

/// Writes adapters as PEFT's files, unless they are merged. Otherwise writes weights (all or nothing), config.json and,
/// if readable, the run's tokenizer files. Returns a summary. Throws ErrorCode::data for a damaged checkpoint or an
/// unknown model, and ErrorCode::usage if weights exist.
[[nodiscard]] std::string export_weights(const std::filesystem::path& checkpoint, const ExportOptions& options);

}  // namespace ranvier::apps
