// Page of --serve and of reports: page.html with page.js, embedded at build time. Also the data of a run as JSON, which
// the page reads from a server or from a report's file. Pure functions, callable from any thread.
#pragma once

#include "apps/view/history.hpp"
#include "apps/view/rank_summary.hpp"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// The page of a run that trains; it requests the data from its server.
[[nodiscard]] std::string_view page_html() noexcept;

/// The page with its data in it, as one file: `data` is the JSON object that page.js calls `report`. `text` is shown
/// and found without JavaScript. Escapes all texts.
[[nodiscard]] std::string finished_page(std::string_view title, std::string_view text, std::string_view data);

/// `null` for a missing, infinite or NaN value, which JSON lacks.
[[nodiscard]] boost::json::value json_number(std::optional<double> value);

/// /status without phase, number of steps and times of the running process.
[[nodiscard]] boost::json::object status_json(const History& history);
inline constexpr std::size_t max_points = 1500;  ///< points of a series in the page
/// /series: one list per metric, for bins also lists of minima and maxima.
[[nodiscard]] std::string series_json(const std::vector<StepBin>& bins);
/// /ranks. `before`: earlier snapshot, for bytes sent per second; may be empty.
[[nodiscard]] std::string ranks_json(const RankSnapshot& now, const RankSnapshot& before);

}  // namespace ranvier::apps
