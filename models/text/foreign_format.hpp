// Files that are neither text nor tokens, by how they begin, and what to make of them instead. Pure; any thread.
#pragma once

#include <string_view>

namespace ranvier::models {

struct ForeignFormat {
  std::string_view name;    ///< "an array of NumPy's (.npy)"
  std::string_view remedy;  ///< "write …"

  /// Whether the remedy makes data of it.
  [[nodiscard]] bool holds_data() const;
};

/// Bytes that foreign_format() wants to see, if the file has so many.
inline constexpr std::size_t foreign_format_bytes = 512;

/// What a file that begins like this is; null: none of the known formats. Lasts.
[[nodiscard]] const ForeignFormat* foreign_format(std::string_view beginning);

}  // namespace ranvier::models
