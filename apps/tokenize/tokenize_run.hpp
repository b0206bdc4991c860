// One run of ranvier-tokenize: reads text in parts, encodes them on several threads and appends the tokens. Constant
// memory. One thread calls.
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
    std::uint64_t bytes = 0;    ///< size of the file, compressed if it is
    std::int64_t modified = 0;  ///< modification time in nanoseconds
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;           ///< total bytes of the files
  std::vector<std::string> remarks;  ///< lines to print: skipped files
};

/// Files selected by the options, without empty ones. Throws ErrorCode::io or ::data.
[[nodiscard]] TokenizeInput find_input(const TokenizeOptions& options);

struct TokenizeResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::uint64_t skipped_bytes = 0;   ///< bytes that an interrupted run has already encoded
  std::vector<std::string> remarks;  ///< lines to print: bytes that are not text, rows without text
};

/// Calls `progress` often, with encoded and total bytes. Throws ErrorCode::io or ::data.
TokenizeResult tokenize(const TokenizeOptions& options, const TokenizeInput& input,
                        const std::function<void(std::uint64_t done, std::uint64_t all)>& progress);

}  // namespace ranvier::apps
