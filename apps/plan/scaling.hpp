// One training on more and more ranks: the best candidate of each number, and what keeps it from being faster. One
// thread calls; simulations run on several.
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

/// What a step would be rid of if something else were not there; shares of the step, the rest of it is computing.
struct StepShares {
  double links = 0;   ///< messages that took no time
  double order = 0;   ///< nobody waiting for others' work: a pipeline's bubble, uneven stages
  double memory = 0;  ///< room for whatever is fastest; beside the others, of another candidate

  /// "links", "order", "memory": whichever is most; "compute" where none of them is a tenth of the step.
  [[nodiscard]] std::string_view limit() const noexcept;
};

struct ScalingPoint {
  ReportContext context;
  std::optional<Ranked> best;  ///< none: nothing fits, or can run
  std::string why_none;        ///< then
  StepShares shares;
};

/// The best candidate is predicted again with messages that take no time; and where memory left candidates out, all are
/// searched again without its bounds. `all_rows`: whether all are simulated; none: as usual_prediction() says. `flags`
/// are a Planner's. Throws as that and check_links() do. The profile outlives the point.
[[nodiscard]] ScalingPoint scaling_point(const std::vector<GivenFlag>& flags,
                                         const runtime::MachineProfile& profile, double price_per_hour,
                                         const runtime::CostModel& costs, const Predictor& predict,
                                         const SearchLimits& limits, const std::optional<bool>& all_rows = {});

[[nodiscard]] std::string scaling_table(const std::vector<ScalingPoint>& points);
/// Rates of a rank, in parts of what its time goes by for.
[[nodiscard]] BarPlot scaling_plot(const std::vector<ScalingPoint>& points);
[[nodiscard]] boost::json::array to_json(const std::vector<ScalingPoint>& points);

}  // namespace ranvier::apps
