// What ranvier-plan says: tables for people, JSON for programs, a config file for ranvier-train. Pure; any thread.
#pragma once

#include "apps/plan/plot.hpp"
#include "apps/plan/ranking.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// What is said of every candidate.
struct ReportContext {
  const runtime::MachineProfile* profile = nullptr;
  int world = 1;
  int batch_size = 1;
  runtime::DType precision = runtime::DType::f32;
  double price_per_hour = 0;  ///< of a device; 0: not known
  std::string item = "token";
};

/// Of a million tokens; none: there is no price.
[[nodiscard]] std::optional<double> cost_per_million(const actors::Prediction& prediction,
                                                     const ReportContext& context);

/// The best rows, a line each and one for the flags in which alternatives differ, then the memory of each by kind.
[[nodiscard]] std::string ranking_table(const Ranking& ranking, const ReportContext& context);
/// How the search went: what was left out and why, and what it may have missed.
[[nodiscard]] std::string search_lines(const Ranking& ranking);
/// What a rank of each stage does in a step, as the summary of a run has it; of more than 16 stages what an average one
/// does, and the busiest and the idlest. Empty: the prediction has no stages.
[[nodiscard]] std::string stages_table(const Ranked& ranked);
/// Where none of the candidates can run for another reason than memory: which, with what to do; else none.
[[nodiscard]] std::optional<std::string> none_runs(const Ranking& ranking);
/// A line about a search that found no candidate: as the above, or what lacks to the one that came nearest.
[[nodiscard]] std::string why_none(const Ranking& ranking);
/// "--precision bf16, " among flags that save memory; empty in half precision.
[[nodiscard]] const char* narrower(const ReportContext& context);
/// Where nothing fits: the candidate that came nearest, and what would help.
[[nodiscard]] std::string nothing_fits(const Ranking& ranking, const ReportContext& context);
[[nodiscard]] BarPlot ranking_plot(const Ranking& ranking, const ReportContext& context);
[[nodiscard]] boost::json::object to_json(const Ranked& ranked, const ReportContext& context);
[[nodiscard]] boost::json::object to_json(const Ranking& ranking, const ReportContext& context);

/// "812.3 ms a step, 5.2k tok/s, MFU 31.0%".
[[nodiscard]] std::string prediction_text(const Ranked& ranked, const ReportContext& context);

/// Lines of key = value, with what was predicted as comments before them.
[[nodiscard]] std::string config_text(const Ranked& ranked, const ReportContext& context);

/// One of several cases that are compared.
struct Case {
  std::string label;  ///< "bandwidth × 2"
  ReportContext context;
  std::optional<Ranked> best;  ///< none: nothing fits, or can run
  std::string why_none;        ///< then
  std::optional<Ranked> kept;  ///< the first case's best, here; none: it does not fit
};
/// The first case is what the others are compared with.
[[nodiscard]] std::string cases_table(const std::vector<Case>& cases);
[[nodiscard]] BarPlot cases_plot(const std::vector<Case>& cases);
[[nodiscard]] boost::json::object to_json(const Case& one);

}  // namespace ranvier::apps
