#include "apps/plan/plan_run.hpp"

#include "apps/plan/plan_report.hpp"
#include "apps/plan/scaling.hpp"
#include "apps/plan/scenarios.hpp"
#include "apps/program/flag_names.hpp"
#include "collectives/plans/link_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/atomic_file.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

namespace ranvier::apps {

using runtime::MachineProfile;

namespace {

namespace json = boost::json;

constexpr int nothing_fits_exit_code = 1;  // a valid result, not a failure

/// Prints the progress of a search, prefixed by `what`.
std::function<void(const SearchProgress&)> teller(const PlanTools& tools, const std::string& what) {
  if (!tools.print) return {};
  return [print = tools.print, what](const SearchProgress& now) {
    const std::string simulating = now.simulating > 0 ? fmt::format(", simulating {} more", now.simulating) : "";
    print(fmt::format("{}: {} candidates, {} planned, {} simulated{}", what, now.candidates, now.planned,
                      now.simulated, simulating),
          false);
  };
}

double price_of(const PlanOptions& options, const MachineProfile& profile) {
  return options.price > 0 ? options.price : profile.price_per_hour;
}

/// Path of the profile's link file, next to --write-config.
std::string links_path(const std::string& config) { return config + ".links.json"; }

/// Path of the trace of case `number`, counted from 1.
std::filesystem::path trace_path(const std::string& path, std::size_t number) {
  std::filesystem::path file(path);
  if (number > 1)
    file.replace_filename(fmt::format("{}.{}{}", file.stem().string(), number, file.extension().string()));
  return file;
}

void check_outputs(const PlanOptions& options, std::size_t cases) {
  const auto check = [&](const std::filesystem::path& path, const char* flag) {
    runtime::check_replaced(path, flag, options.overwrite);
    runtime::check_writable(path, flag);
  };
  if (!options.plot.empty()) check(options.plot, "--plot");
  if (!options.write_config.empty()) check(options.write_config, "--write-config");
  if (!options.write_config.empty()) check(links_path(options.write_config), "--write-config");
  for (std::size_t number = 1; number <= cases && !options.write_trace.empty(); ++number)
    check(trace_path(options.write_trace, number), "--write-trace");
}

/// Adds --links with the profile's links, so that ranvier-train chooses the planned algorithms.
void write_config(const std::string& path, Ranked& best, const Planner& planner, const ReportContext& context) {
  const bool by_links = best.candidate.g_data > 1 && !planner.is_given("links");
  if (by_links) {
    const std::string links = links_path(path);
    runtime::write_file(links, collectives::to_json(planner.profile().links));
    best.config.push_back({"links", links});
  }
  runtime::write_file(path, config_text(best, context));
}

/// Simulates the candidate again, all ranks, and writes the trace of case `number`.
std::string write_trace(const std::string& path, std::size_t number, const Ranked& ranked, const Planner& planner,
                        const PlanTools& tools, actors::PredictionOptions how) {
  const std::filesystem::path file = trace_path(path, number);
  how.trace = true;
  predict_on(planner, tools.predict, ranked, planner.profile(), how).write_trace(file);
  return fmt::format("written: {}, two simulated steps of {} ranks with {}; open the file in ui.perfetto.dev\n",
                     file.string(), planner.world(), ranked.candidate.text());
}

/// Note about output flags of ranvier-train; empty without such flags.
std::string training_flags(const PlanOptions& options) {
  std::string flags;
  for (const GivenFlag& flag : options.train)
    if (traits_of(flag.name).plan == PlanRole::output)
      flags += fmt::format("{}--{} {}", flags.empty() ? "" : ", ", flag.name, flag.value);
  if (flags.empty()) return {};
  return fmt::format(
      "\noutput flags of ranvier-train; ranvier-plan does not write these files: {}\n"
      "use --write-trace for a trace of the plan, --json for its values\n",
      flags);
}

/// Step time of the best candidate with messages in int8 between nodes. The search never chooses them, because they
/// round numbers. Empty if the flags are given, or if they gain less than 2 %.
std::string message_advice(const PlanOptions& options, const Scenario& scenario, const Ranked& best,
                           const PlanTools& tools, const actors::PredictionOptions& how) {
  const auto sends = [](const actors::RankTraffic& rank) { return rank.inter + rank.nccl_inter > 0; };
  if (best.candidate.g_data == 1 || std::ranges::none_of(best.prediction.traffic, sends)) return {};
  std::vector<GivenFlag> types;
  for (const char* const flag : {"gather-dtype", "reduce-dtype"})
    if (value_of(options.train, flag) == nullptr) types.push_back({flag, "inter=int8"});
  // Some shardings and schedules refuse parameters in int8.
  for (; !types.empty(); types.erase(types.begin())) {
    std::vector<GivenFlag> flags = flags_in(scenario, options.train);
    flags.insert(flags.end(), types.begin(), types.end());
    const Planner planner(std::move(flags), scenario.profile);
    const auto ranked = predict_one(planner, tools.predict, best.candidate, how);
    if (!ranked) continue;
    const double seconds = ranked->prediction.step_seconds, gain = best.prediction.step_seconds / seconds;
    if (gain < 1.02) return {};
    std::string words;
    for (const GivenFlag& flag : types) words += fmt::format("--{} {} ", flag.name, flag.value);
    return fmt::format(
        "\nthe best plan with {}(rounds messages between nodes): {:.3g} s per step, {:.2f} × as fast\n", words,
        seconds, gain);
  }
  return {};
}

PlanResult run_scale(const PlanOptions& options, const PlanTools& tools, SearchLimits limits) {
  const MachineProfile profile = tools.read_profile(options.profiles.front());
  limits.best = 1;
  std::vector<ScalingPoint> points;
  for (const int world : options.scale) {
    limits.progress = teller(tools, fmt::format("{} ranks", world));
    std::vector<GivenFlag> flags = options.train;
    flags.push_back({"world", std::to_string(world)});
    points.push_back(
        scaling_point(flags, profile, price_of(options, profile), tools.predict, limits, options.all_rows));
    if (!tools.print) continue;
    const ScalingPoint& point = points.back();
    tools.print(point.best
                    ? fmt::format("{} ranks: {:.3f} s per step, {}, {}", world, point.best->prediction.step_seconds,
                                  point.shares.limit(), point.best->candidate.text())
                    : fmt::format("{} ranks: {}", world, point.why_none),
                true);
  }
  if (!options.plot.empty()) runtime::write_file(options.plot, svg(scaling_plot(points)));
  const bool any = std::ranges::any_of(points, [](const auto& point) { return point.best.has_value(); });
  return {.status = any ? 0 : nothing_fits_exit_code,
          .text = options.json ? json::serialize(json::object{{"scale", to_json(points)}}) + '\n'
                               : scaling_table(points)};
}

}  // namespace

PlanResult run_plan(const PlanOptions& options, const PlanTools& tools) {
  SearchLimits limits{.best = static_cast<std::size_t>(options.best),
                      .simulations = static_cast<std::size_t>(options.simulations),
                      .threads = options.jobs,
                      .exhaustive = options.exhaustive,
                      .estimate = options.no_simulation};
  if (!options.scale.empty()) {
    check_outputs(options, 0);
    return run_scale(options, tools, limits);
  }
  const std::vector<Scenario> scenarios = scenarios_of(options, tools.read_profile);
  check_outputs(options, scenarios.size());
  PlanResult result;
  json::object report;
  json::array cases_json;
  std::vector<Case> cases;
  std::optional<Candidate> first_best;
  for (const Scenario& scenario : scenarios) {
    const Planner planner(flags_in(scenario, options.train), scenario.profile);
    check_links(planner);
    const ReportContext context = report_context(planner, price_of(options, scenario.profile));
    actors::PredictionOptions how = usual_prediction(planner.world());
    if (options.all_rows) how.distinct_only = !*options.all_rows;
    how.disturbances = disturbances_of(scenario, planner);
    limits.progress = teller(tools, scenario.label);
    const bool is_first = &scenario == &scenarios.front();
    Ranking ranking;
    std::string no_grid;
    try {
      ranking = rank_candidates(planner, tools.predict, limits, how);
    } catch (const Error& error) {
      if (!scenario.world || error.code() != ErrorCode::usage) throw;
      no_grid = message_of(error);  // only these remaining ranks; the other cases still count
    }
    if (is_first) {
      if (const auto why = none_runs(ranking)) reject("{}; use other values or fewer flags", *why);
      if (ranking.best.empty()) {
        result.status = nothing_fits_exit_code;
        result.text += search_lines(ranking) + '\n' + nothing_fits(ranking, context);
      } else {
        first_best = ranking.best.front().candidate;
        result.text +=
            search_lines(ranking) + '\n' + ranking_table(ranking, context) + stages_table(ranking.best.front());
        result.text += training_flags(options);
        if (!options.json && !options.no_simulation)
          result.text += message_advice(options, scenario, ranking.best.front(), tools, how);
        if (options.no_simulation)
          result.text += "\nnot simulated: times are estimates without waiting for other ranks\n";
      }
      report = to_json(ranking, context);
      if (!options.plot.empty() && !options.compares())
        runtime::write_file(options.plot, svg(ranking_plot(ranking, context)));
      if (!options.write_config.empty() && first_best) {
        write_config(options.write_config, ranking.best.front(), planner, context);
        result.text += fmt::format("\nwritten: {}; use mpirun -n {} ranvier-train --config {} --data …\n",
                                   options.write_config, planner.world(), options.write_config);
      }
    }
    const auto number = static_cast<std::size_t>(&scenario - scenarios.data()) + 1;
    if (!options.write_trace.empty() && !ranking.best.empty())
      result.text += '\n' + write_trace(options.write_trace, number, ranking.best.front(), planner, tools, how);
    if (!options.compares()) break;
    Case& one = cases.emplace_back();
    one.label = scenario.label;
    if (ranking.best.empty()) one.why_none = no_grid.empty() ? why_none(ranking) : no_grid;
    one.context = context;
    if (first_best) one.kept = predict_one(planner, tools.predict, *first_best, how);
    if (!ranking.best.empty()) one.best = std::move(ranking.best.front());
    cases_json.push_back(to_json(one));
  }
  if (!cases.empty()) {
    result.text += '\n' + cases_table(cases);
    report["what_if"] = std::move(cases_json);
    if (!options.plot.empty()) runtime::write_file(options.plot, svg(cases_plot(cases)));
  }
  if (options.json) result.text = json::serialize(report) + '\n';
  return result;
}

}  // namespace ranvier::apps
