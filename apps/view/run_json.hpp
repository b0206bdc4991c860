// Data of a run as JSON, as the page reads them: from a server while the run trains, or from a report's file. Pure
// functions, callable from any thread.
#pragma once

#include "apps/view/history.hpp"
#include "apps/view/rank_summary.hpp"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

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
