// Page of --serve: page.html, embedded at build time.
#pragma once

#include <string_view>

namespace ranvier::apps {

[[nodiscard]] std::string_view page_html() noexcept;

}  // namespace ranvier::apps
