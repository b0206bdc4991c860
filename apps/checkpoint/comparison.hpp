// Comparison of two checkpoints. Callable from any thread; blocks.
#pragma once

#include <filesystem>
#include <string>

namespace ranvier::apps {

struct Comparison {
  std::string text;
  bool equal = true;  ///< equal step, scalars and arrays, bit for bit; options and file layout may differ
};

/// Compares options, scalars, tensors and states. Prints the largest absolute difference of each differing tensor, and
/// the largest one relative to the larger value. Throws ErrorCode::data for an incomplete or damaged checkpoint.
[[nodiscard]] Comparison compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace ranvier::apps
