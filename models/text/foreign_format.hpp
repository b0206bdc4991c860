// Recognises files that are neither text nor tokens by their first bytes, with a remedy. Pure; any thread.
#pragma once

#include <string_view>

namespace ranvier::models {

struct ForeignFormat {
  struct Remedy {
    std::string_view text;    ///< "write …"
    bool gives_data = false;  ///< whether it converts the file to data
  };
  std::string_view name;  ///< "a NumPy array (.npy)"
  Remedy remedy;
};

/// Bytes that foreign_format() needs, if the file has as many.
inline constexpr std::size_t foreign_format_bytes = 512;

/// Format of a file that starts with these bytes; null if unknown. Static lifetime.
[[nodiscard]] const ForeignFormat* foreign_format(std::string_view beginning);

}  // namespace ranvier::models
