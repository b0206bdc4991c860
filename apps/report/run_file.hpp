// Reads a run's --metrics and --trace files. Callable from any thread.
#pragma once

#include "apps/view/history.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Summary of a trace: time per kind of span, and all ranks' spans in the last complete step.
struct TraceSummary {
  struct Span {
    std::string kind;  ///< "forward", "wait"
    double begin_ms = 0, length_ms = 0;
    int index = -1;  ///< microbatch or unit; -1: none
  };
  std::int64_t step = 0;  ///< 0: no step is complete
  double step_ms = 0;
  double seconds = 0;                                   ///< time covered by spans
  std::map<int, std::map<std::string, double>> shares;  ///< fraction of that time by rank and kind
  std::map<int, std::vector<Span>> ranks;               ///< longest spans of `step` by rank, in order of start
};

struct RunFile {
  std::string name;
  History history;
  TraceSummary trace;  ///< empty: no trace
  bool has_trace = false;
  std::size_t lines_left_out = 0;  ///< lines that are not records
};

struct RunPaths {
  std::filesystem::path metrics, trace;  ///< one of them may be empty
};
/// Parses METRICS, METRICS,TRACE, TRACE, or a folder with metrics.jsonl and optionally trace.json. Throws
/// ErrorCode::usage if a file is missing.
[[nodiscard]] RunPaths run_paths(const std::string& given);

/// Reads a run; without metrics the history is empty. Throws ErrorCode::data for files of another kind, ErrorCode::io.
[[nodiscard]] RunFile read_run(const RunPaths& paths, const std::string& name);
/// Calls `take` with each line of a metrics file.
void for_each_record(const std::filesystem::path& metrics, const std::function<void(std::string_view)>& take);
[[nodiscard]] TraceSummary read_trace(const std::filesystem::path& path);

/// Line with the columns' names for CSV.
[[nodiscard]] std::string csv_header();
/// CSV line of a record; empty if it is not a record of a step.
[[nodiscard]] std::string csv_line(const std::string& run, std::string_view record);

}  // namespace ranvier::apps
