// One run of ranvier-tokenize: text read piece by piece, encoded on several threads, appended, in memory that does
// not grow with the text. One thread.
#pragma once

#include "apps/tokenize_options.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct TokenizeResult {
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t skipped_bytes = 0;  ///< done by an earlier run that was interrupted
  std::int64_t tokens = 0;
};

/// Calls `progress` with bytes done and bytes in all, often. Throws ErrorCode::io or ::data.
TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(std::uint64_t done, std::uint64_t all)>& progress);

}  // namespace ranvier::apps
