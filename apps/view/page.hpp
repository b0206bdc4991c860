// Page of --serve and of reports: page.html with page.js, embedded at build time. Callable from any thread.
#pragma once

#include <string>
#include <string_view>

namespace ranvier::apps {

/// The page of a run that trains; it requests the data from its server.
[[nodiscard]] std::string_view page_html() noexcept;

/// The page with its data in it, as one file: `data` is the JSON object that page.js calls `report`. `text` is shown
/// and found without JavaScript. Escapes all texts.
[[nodiscard]] std::string finished_page(std::string_view title, std::string_view text, std::string_view data);

}  // namespace ranvier::apps
