// What two checkpoints differ in. Any thread; blocks.
#pragma once

#include <filesystem>
#include <string>

namespace ranvier::apps {

struct Comparison {
  std::string text;
  bool equal = true;  ///< steps, numbers, and arrays to the bit; options and where files lie may differ
};

/// Options, scalars, and of each tensor and state that is not equal to the bit the largest difference, absolute and
/// relative to the larger of two values. Throws ErrorCode::data for a checkpoint that is not whole or damaged.
[[nodiscard]] Comparison compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace ranvier::apps
