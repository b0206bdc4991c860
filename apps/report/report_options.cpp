#include "apps/report/report_options.hpp"

#include "apps/program/options.hpp"
#include "apps/report/report_page.hpp"
#include "apps/report/run_file.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;

OptionTable declare(ReportOptions& options) {
  OptionTable table;
  table.rest(options.runs);
  table.concern("Report");
  table.add({"output", "FILE", "HTML page to write (-o for short)", text(options.output)});
  table.add({"csv", "FILE", "Write all steps of all runs as comma-separated values instead of a page",
             text(options.csv), "none"});
  table.add({"timeline", "FILE.svg", "Draw the last complete step of a run's trace instead of a page",
             text(options.timeline), "none"});
  table.add({"names", "A,B", "Names of the runs",
             list<std::string>(options.names, "names separated by commas",
                               [](const std::string& name) { return std::optional(name); }),
             "their paths"});
  table.add({"price", "X", "Price per device and hour, for the cost of runs and of a million tokens",
             real(options.price, 0), "unknown"});
  table.add(
      {"title", "TEXT", "Title of the page or picture", text(options.title), "the names of the runs, or the step"});
  table.add({"overwrite", "", "Replace an existing file", switch_on(options.overwrite)});
  declare_info(table, options.info);
  return table;
}

/// Flag and path of the output.
std::pair<const char*, const std::string&> target_of(const ReportOptions& options) {
  if (!options.csv.empty()) return {"--csv", options.csv};
  if (!options.timeline.empty()) return {"--timeline", options.timeline};
  return {"--output", options.output};
}

void check_output(const ReportOptions& options, const std::vector<RunPaths>& runs) {
  const auto [flag, path] = target_of(options);
  std::error_code unknown;
  for (const RunPaths& run : runs) {
    if (fs::equivalent(path, run.metrics, unknown) ||
        (!run.trace.empty() && fs::equivalent(path, run.trace, unknown)))
      reject("{} {} would overwrite an input file; use another path", flag, path);
  }
  runtime::check_replaced(path, flag, options.overwrite);
}

}  // namespace

ReportOptions parse_report_options(int argc, const char* const* argv) {
  ReportOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  if (options.info.any()) return options;
  if (options.runs.empty()) reject("run is missing; add the --metrics file of ranvier-train or its folder");
  if (options.names.empty()) options.names = options.runs;
  if (options.names.size() != options.runs.size())
    reject("--names {} has {} names for {} run{}; use one name per run", fmt::join(options.names, ","),
           options.names.size(), options.runs.size(), options.runs.size() == 1 ? "" : "s");
  const bool also_page = table.given("output") && !(options.csv.empty() && options.timeline.empty());
  if (also_page || (!options.csv.empty() && !options.timeline.empty()))
    reject("{} {} and {} cannot be combined; remove one of the flags", target_of(options).first,
           target_of(options).second, also_page ? "--output " + options.output : "--timeline " + options.timeline);
  if (!options.timeline.empty() && options.runs.size() != 1)
    reject("--timeline {} takes one run, not {}; name only one", options.timeline, options.runs.size());
  return options;
}

Manual report_manual() {
  ReportOptions options;
  return {.program = "ranvier-report",
          .summary = "writes runs of ranvier-train as one HTML page, side by side if there are several",
          .forms = {{"ranvier-report RUN... -o report.html", ""}},
          .about =
              "A RUN is a --metrics file, METRICS,TRACE (with a --trace file), or a folder with metrics.jsonl and "
              "optionally trace.json. --timeline also accepts a trace without metrics, for example from "
              "ranvier-plan --write-trace.",
          .options = declare(options).facts(),
          .arguments = PathKind::any};
}

std::string write_report(const ReportOptions& options) {
  std::vector<RunPaths> paths;
  for (const std::string& run : options.runs) paths.push_back(run_paths(run));
  for (const RunPaths& run : paths)
    if (run.metrics.empty() && options.timeline.empty())
      reject("run is a trace only: {}; use METRICS,TRACE for a {}, or --timeline FILE.svg for a picture",
             run.trace.string(), options.csv.empty() ? "page" : "table");
  check_output(options, paths);
  if (!options.csv.empty()) {
    runtime::AtomicFile file(options.csv);
    const std::string header = csv_header();
    file.append(header.data(), header.size());
    std::size_t lines = 0;
    for (std::size_t r = 0; r < paths.size(); ++r) {
      for_each_record(paths[r].metrics, [&](std::string_view record) {
        const std::string line = csv_line(options.names[r], record);
        lines += line.empty() ? 0 : 1;
        file.append(line.data(), line.size());
      });
    }
    file.commit();
    return fmt::format("{}: {} line{}\n", options.csv, lines, lines == 1 ? "" : "s");
  }
  std::vector<RunFile> runs;
  for (std::size_t r = 0; r < paths.size(); ++r) runs.push_back(read_run(paths[r], options.names[r]));
  if (!options.timeline.empty()) {
    runtime::write_file(options.timeline, timeline_file(runs.front(), options.title));
    return fmt::format("timeline: {}\n", options.timeline);
  }
  std::string title = options.title;
  if (title.empty()) title = fmt::format("{}", fmt::join(options.names, ", "));
  runtime::write_file(options.output, report_page(runs, title, options.price));
  return fmt::format("report: {}\n", options.output);
}

}  // namespace ranvier::apps
