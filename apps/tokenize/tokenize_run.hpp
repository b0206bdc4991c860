// One run of ranvier-tokenize: text read piece by piece, encoded on several threads, appended, in memory that does
// not grow with the text. One thread.
#pragma once

#include "apps/tokenize/tokenize_options.hpp"
#include "models/text/data_file.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct TokenizeInput {
  struct File {
    models::DataFile data;
    std::uint64_t bytes = 0;  ///< as it lies there
    std::int64_t modified = 0;
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;           ///< of all of them
  std::vector<std::string> remarks;  ///< what people should know: files that are left out
};

/// The files that the options mean; an empty one is no document. Throws ErrorCode::io or ::data.
[[nodiscard]] TokenizeInput find_input(const TokenizeOptions& options);

struct TokenizeResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::uint64_t skipped_bytes = 0;   ///< of the files: an earlier run that was interrupted had done them
  std::vector<std::string> remarks;  ///< bytes that belong to no text, rows without any
};

/// Calls `progress` with bytes of the files done, and in all, often. Throws ErrorCode::io or ::data.
TokenizeResult tokenize(const TokenizeOptions& options, const TokenizeInput& input,
                        const std::function<void(std::uint64_t done, std::uint64_t all)>& progress);

}  // namespace ranvier::apps
