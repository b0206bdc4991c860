// Scaling of one job: the best candidate for each number of ranks, and its bottleneck. One thread calls; simulations
// run on several threads.
#pragma once

#include "apps/plan/plan_report.hpp"
#include "apps/plan/plot.hpp"
#include "apps/plan/ranking.hpp"

#include <boost/json/array.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Fractions of the step time that would be saved without one obstacle; the rest is computing.
struct StepShares {
  double links = 0;   ///< gain if messages took no time
  double order = 0;   ///< gain without waiting for other ranks' work: pipeline bubble, uneven stages
  double memory = 0;  ///< gain of the fastest candidate with unlimited memory; not additive to the other two

  /// Largest of "links", "order" and "memory"; "compute" if all are below a tenth of the step.
  [[nodiscard]] std::string_view limit() const noexcept;
};

struct ScalingPoint {
  ReportContext context;
  std::optional<Ranked> best = {};  ///< none: no candidate fits or can run
  std::string why_none = {};        ///< reason if `best` is none
  StepShares shares = {};
};

/// Predicts the best candidate again with messages that take no time. If memory excluded candidates, repeats the search
/// with unlimited memory. `all_rows`: simulate all rows; none: as usual_prediction(). `flags` are the flags of a
/// Planner. Throws like Planner and check_links(). The profile outlives the point.
[[nodiscard]] ScalingPoint scaling_point(const std::vector<GivenFlag>& flags,
                                         const runtime::MachineProfile& profile, double price_per_hour,
                                         const Predictor& predict, const SearchLimits& limits,
                                         const std::optional<bool>& all_rows = {});

[[nodiscard]] std::string scaling_table(const std::vector<ScalingPoint>& points);
/// Bars of the rate per rank, split into computing, messages and waiting.
[[nodiscard]] BarPlot scaling_plot(const std::vector<ScalingPoint>& points);
[[nodiscard]] boost::json::array to_json(const std::vector<ScalingPoint>& points);

}  // namespace ranvier::apps
