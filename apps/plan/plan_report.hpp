// Output of ranvier-plan: tables, JSON, a config file for ranvier-train. Pure functions, callable from any thread.
#pragma once

#include "apps/plan/plot.hpp"
#include "apps/plan/ranking.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Values common to all candidates of a report.
struct ReportContext {
  const runtime::MachineProfile* profile = nullptr;
  int world = 1;
  int batch_size = 1;
  runtime::DType precision = runtime::DType::f32;
  double price_per_hour = 0;  ///< price per device and hour; 0: unknown
  std::string item = "token";
};

/// `price_per_hour`: as in ReportContext. The planner's profile outlives the context.
[[nodiscard]] ReportContext report_context(const Planner& planner, double price_per_hour);

/// Ranking with one line per row, plus one for the flags in which its alternatives differ; then memory by kind.
[[nodiscard]] std::string ranking_table(const Ranking& ranking, const ReportContext& context);
/// Summary of the search: candidates left out and why, and the possible gain of those not simulated.
[[nodiscard]] std::string search_lines(const Ranking& ranking);
/// Time per step of one rank per stage, with the columns of a run's final summary. More than 16 stages become their
/// average, the busiest and the idlest. Empty if the prediction has no stages.
[[nodiscard]] std::string stages_table(const Ranked& ranked);
/// Reasons if no candidate can run, for another cause than memory; none otherwise.
[[nodiscard]] std::optional<std::string> none_runs(const Ranking& ranking);
/// One line for a search without result: none_runs(), or the memory that the closest candidate lacks.
[[nodiscard]] std::string why_none(const Ranking& ranking);
/// Flags that save memory: "use more ranks, …".
[[nodiscard]] std::string memory_remedy(runtime::DType precision);
/// Lines about the candidate that exceeds the capacity by the least.
[[nodiscard]] std::string closest_text(const Closest& closest);
/// Text for a search in which nothing fits: the closest candidate, and flags that save memory.
[[nodiscard]] std::string nothing_fits(const Ranking& ranking, const ReportContext& context);
[[nodiscard]] BarPlot ranking_plot(const Ranking& ranking, const ReportContext& context);
[[nodiscard]] boost::json::object to_json(const Ranked& ranked, const ReportContext& context);
[[nodiscard]] boost::json::object to_json(const Ranking& ranking, const ReportContext& context);

/// "812.3 ms per step, 5.2k tok/s, MFU 31.0%".
[[nodiscard]] std::string prediction_text(const Ranked& ranked, const ReportContext& context);

/// Lines of key = value, after comments with the prediction.
[[nodiscard]] std::string config_text(const Ranked& ranked, const ReportContext& context);

/// One of several compared cases.
struct Case {
  std::string label;  ///< "bandwidth × 2"
  ReportContext context;
  std::optional<Ranked> best;  ///< none: no candidate fits or can run
  std::string why_none;        ///< reason if `best` is none
  std::optional<Ranked> kept;  ///< the first case's best plan, predicted for this case; none: it does not fit
};
/// Compares all cases with the first one.
[[nodiscard]] std::string cases_table(const std::vector<Case>& cases);
[[nodiscard]] BarPlot cases_plot(const std::vector<Case>& cases);
[[nodiscard]] boost::json::object to_json(const Case& one);

}  // namespace ranvier::apps
