// Escapes text for HTML and SVG. Pure functions, callable from any thread.
#pragma once

#include <string>
#include <string_view>

namespace ranvier::apps {

/// Escapes text for use between tags or in a quoted attribute. Removes control characters except tabs and newlines.
[[nodiscard]] std::string markup_text(std::string_view text);

}  // namespace ranvier::apps
