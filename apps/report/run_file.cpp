#include "apps/report/run_file.hpp"

#include "apps/program/markup.hpp"
#include "apps/program/options.hpp"
#include "runtime/base/error.hpp"
#include "runtime/trace/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t max_spans = 200;  // per rank
constexpr double max_ranks = 1 << 16;   // a trace with larger rank numbers is not one of Ranvier

struct Event {
  std::size_t rank = 0;
  runtime::SpanKind kind{};
  std::string name;
  double begin_ms = 0, length_ms = 0;
  std::int64_t step = 0;
};

std::optional<runtime::SpanKind> kind_of(std::string_view name) {
  for (int k = 0; k < runtime::span_kinds; ++k)
    if (const auto kind = static_cast<runtime::SpanKind>(k); name == runtime::to_string(kind)) return kind;
  return std::nullopt;
}

/// Index at the end of a span's name: 3 in "forward 3"; -1: none.
int index_of(std::string_view name) {
  const std::size_t blank = name.rfind(' ');
  if (blank == std::string_view::npos) return -1;
  int index = -1;
  const auto [end, error] = std::from_chars(name.data() + blank + 1, name.data() + name.size(), index);
  return error == std::errc{} && end == name.data() + name.size() ? index : -1;
}

/// Event of a trace's line; none: the line is not a span.
std::optional<Event> event_of(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  if (!line.starts_with("{\"ph\":\"X\"")) return std::nullopt;
  const auto parsed = parse_record(line);
  if (!parsed) return std::nullopt;
  const json::object& object = *parsed;
  const double rank = number_of(object, "pid");
  const auto kind = kind_of(text_of(object, "cat"));
  if (!(rank >= 0 && rank < max_ranks) || !kind) return std::nullopt;
  Event event{.rank = static_cast<std::size_t>(rank),
              .kind = *kind,
              .name = text_of(object, "name"),
              .begin_ms = number_of(object, "ts") * 1e-3,
              .length_ms = number_of(object, "dur") * 1e-3};
  if (!std::isfinite(event.begin_ms) || !std::isfinite(event.length_ms)) return std::nullopt;
  if (const json::object* arguments = object_of(object, "args"))
    if (const double step = number_of(*arguments, "step"); std::abs(step) < 1e15)
      event.step = static_cast<std::int64_t>(step);
  return event;
}

/// Returns whether the file begins like a trace.
bool is_trace(const fs::path& path) {
  constexpr std::string_view beginning = R"({"traceEvents")";
  std::string text(beginning.size(), ' ');
  std::ifstream file(path, std::ios::binary);
  return file.read(text.data(), static_cast<std::streamsize>(text.size())) && text == beginning;
}

}  // namespace

RunPaths run_paths(const std::string& given) {
  std::error_code unknown;
  RunPaths paths;
  if (fs::is_directory(given, unknown)) {
    paths.metrics = fs::path(given) / "metrics.jsonl";
    if (fs::is_regular_file(fs::path(given) / "trace.json", unknown)) paths.trace = fs::path(given) / "trace.json";
    if (!fs::is_regular_file(paths.metrics, unknown))
      reject("{} has no metrics.jsonl; use the --metrics file of ranvier-train", given);
    return paths;
  }
  paths.metrics = given;
  if (!fs::exists(given, unknown)) {
    if (const std::size_t comma = given.rfind(','); comma != std::string::npos) {
      paths = {.metrics = given.substr(0, comma), .trace = given.substr(comma + 1)};
    }
  }
  for (const fs::path& path : {paths.metrics, paths.trace}) {
    if (!path.empty() && !fs::is_regular_file(path, unknown))
      reject("run file not found: {}; use a --metrics file of ranvier-train, or METRICS,TRACE", path.string());
  }
  if (paths.trace.empty() && is_trace(paths.metrics)) std::swap(paths.metrics, paths.trace);
  return paths;
}

void for_each_record(const fs::path& path, const std::function<void(std::string_view)>& take) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::io, "{} cannot be read", path.string());
  for (std::string line; std::getline(file, line);) take(line);
  if (file.bad()) fail(ErrorCode::io, "{} cannot be read to its end", path.string());
}

RunFile read_run(const RunPaths& paths, const std::string& name) {
  RunFile run{.name = name, .history = History(1 << 14), .ranks = {}};
  if (!paths.metrics.empty()) {
    for_each_record(paths.metrics, [&](std::string_view line) {
      if (!line.empty() && !run.history.take(line)) ++run.lines_left_out;
    });
    if (run.history.series().size() == 0 && run.history.evaluations().empty())
      fail(ErrorCode::data, "metrics file has no steps: {}; use a --metrics file of ranvier-train",
           paths.metrics.string());
  }
  if (!paths.trace.empty()) run.ranks = read_trace(paths.trace);
  return run;
}

std::optional<runtime::GridShape> grid_of(const RunFile& run) {
  const auto flag = [&](std::string_view name) {
    return parse_whole(text_of(run.history.configuration(), name), 1).value_or(0);
  };
  const runtime::GridShape shape{.g_inter = flag("g-inter"), .g_data = flag("g-data")};
  const std::int64_t ranks = std::int64_t{shape.g_inter} * shape.g_data;
  if (shape.g_inter < 1 || shape.g_data < 1 || ranks > std::numeric_limits<int>::max()) return std::nullopt;
  return shape;
}

RankSnapshot read_trace(const fs::path& path) {
  RankSnapshot result;
  using Times = std::array<double, runtime::span_kinds>;  // milliseconds
  std::vector<Times> until;
  std::vector<double> began;  // start of a rank's spans; a trace keeps only the last ones, so it differs by rank
  double first = std::numeric_limits<double>::infinity(), last = 0;
  std::optional<Event> step;  // last step of rank 0
  for_each_record(path, [&](std::string_view line) {
    const auto event = event_of(line);
    if (!event) return;
    const auto [rank, kind] = std::pair(event->rank, static_cast<std::size_t>(event->kind));
    if (event->kind == runtime::SpanKind::step && rank == 0 && (!step || event->step >= step->step)) step = event;
    const double end = event->begin_ms + event->length_ms;
    first = std::min(first, event->begin_ms);
    last = std::max(last, end);
    if (rank >= result.ranks.size()) {
      result.ranks.resize(rank + 1);
      until.resize(rank + 1);
      began.resize(rank + 1, std::numeric_limits<double>::infinity());
    }
    began[rank] = std::min(began[rank], event->begin_ms);
    // Events of a rank are sorted by start, so overlapping spans of a kind count once.
    double& covered = until[rank][kind];
    result.ranks[rank].summary.seconds[kind] += 1e-3 * std::max(0.0, end - std::max(covered, event->begin_ms));
    covered = std::max(covered, end);
  });
  if (result.ranks.empty())
    fail(ErrorCode::data,
         "trace has no spans: {}; use a --trace file of ranvier-train or --write-trace file of ranvier-plan",
         path.string());
  result.at_seconds = (last - first) * 1e-3;
  // Shares of a rank's own time, as a part of `at_seconds`.
  for (std::size_t rank = 0; rank < began.size(); ++rank)
    for (double& seconds : result.ranks[rank].summary.seconds)
      seconds *= (last - first) / std::max(last - began[rank], 1e-9);
  if (!step) return result;
  result.step = step->step;
  result.step_ms = step->length_ms;
  for_each_record(path, [&](std::string_view line) {
    const auto event = event_of(line);
    if (!event || event->kind == runtime::SpanKind::step || event->kind == runtime::SpanKind::load) return;
    const double begin = std::max(event->begin_ms, step->begin_ms) - step->begin_ms;
    const double end =
        std::min(event->begin_ms + event->length_ms, step->begin_ms + step->length_ms) - step->begin_ms;
    if (end > begin)
      result.ranks[event->rank].spans.push_back({.begin_ms = static_cast<float>(begin),
                                                 .length_ms = static_cast<float>(end - begin),
                                                 .index = index_of(event->name),
                                                 .kind = static_cast<std::uint8_t>(event->kind)});
  });
  for (auto& [summary, spans] : result.ranks) {
    std::ranges::stable_sort(spans, [](const auto& a, const auto& b) { return a.length_ms > b.length_ms; });
    spans.resize(std::min(spans.size(), max_spans));
    std::ranges::stable_sort(spans, [](const auto& a, const auto& b) { return a.begin_ms < b.begin_ms; });
  }
  return result;
}

namespace {

constexpr const char* columns =
    "step,loss,validation_loss,validation_accuracy,hellaswag_accuracy,grad_norm,lr,loss_scale,skipped,tokens,"
    "tokens_per_second,model_flops_per_second,mfu,seconds,measured_mfu";

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return fmt::format("\"{}\"", escaped(text, {{'"', "\"\""}}));
}

}  // namespace

std::string csv_header() { return fmt::format("run,{}\n", columns); }

std::string csv_line(const std::string& run, std::string_view record) {
  const auto object = parse_record(record);
  if (!object || !object->contains("step")) return {};
  std::string line = quoted(run);
  for (const std::string& column : items_of(columns)) {
    line += ',';
    const json::value* cell = object->if_contains(column);
    if (cell == nullptr) continue;
    if (cell->is_bool()) line += cell->get_bool() ? '1' : '0';
    if (cell->is_int64()) line += fmt::format("{}", cell->get_int64());
    if (cell->is_double()) line += fmt::format("{}", cell->get_double());
  }
  return line + '\n';
}

}  // namespace ranvier::apps
