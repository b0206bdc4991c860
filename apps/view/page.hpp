// The page that --serve shows: page.html, as it was when the program was built.
#pragma once

#include <string_view>

namespace ranvier::apps {

[[nodiscard]] std::string_view page_html() noexcept;

}  // namespace ranvier::apps
