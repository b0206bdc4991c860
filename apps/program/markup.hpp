// Text in HTML and SVG. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace ranvier::apps {

/// The text as it stands between tags or in a quoted attribute: nothing in it begins a tag, an entity or ends the
/// attribute. Control characters are left out, but for tabs and new lines.
[[nodiscard]] std::string markup_text(std::string_view text);

}  // namespace ranvier::apps
