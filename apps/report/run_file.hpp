// Reads a run's --metrics and --trace files. Callable from any thread.
#pragma once

#include "apps/view/history.hpp"
#include "apps/view/rank_summary.hpp"
#include "runtime/base/grid.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::apps {

struct RunFile {
  std::string name;
  History history;
  RankSnapshot ranks;              ///< from the trace; empty: no trace
  std::size_t lines_left_out = 0;  ///< lines that are not records
};

/// Grid in the run's configuration; none: it is missing or invalid.
[[nodiscard]] std::optional<runtime::GridShape> grid_of(const RunFile& run);

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
/// Time per kind of span, scaled to the trace's duration `at_seconds`, and each rank's longest spans in the last
/// complete step; `step` is 0 if no step is complete. Throws like read_run().
[[nodiscard]] RankSnapshot read_trace(const std::filesystem::path& path);

/// Line with the columns' names for CSV.
[[nodiscard]] std::string csv_header();
/// CSV line of a record; empty if it is not a record of a step.
[[nodiscard]] std::string csv_line(const std::string& run, std::string_view record);

}  // namespace ranvier::apps
