// A run as its files tell it: what --metrics and --trace of ranvier-train wrote. Any thread.
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

/// Of --trace: shares of time, and all ranks in the last step that is whole.
struct TraceSummary {
  struct Span {
    std::string kind;  ///< "forward", "wait"
    double begin_ms = 0, length_ms = 0;
    int index = -1;  ///< microbatch or unit; -1: none
  };
  std::int64_t step = 0;  ///< 0: no step is whole
  double step_ms = 0;
  double seconds = 0;                                   ///< that spans cover
  std::map<int, std::map<std::string, double>> shares;  ///< of that time, by rank and kind
  std::map<int, std::vector<Span>> ranks;               ///< of that step, the longest of each rank, by beginnings
};

struct RunFile {
  std::string name;
  History history;
  TraceSummary trace;  ///< empty: none was given
  bool has_trace = false;
  std::size_t lines_left_out = 0;  ///< that are no records
};

/// A metrics file; or one and a trace behind a comma; or a trace alone; or a folder that has metrics.jsonl and maybe
/// trace.json.
struct RunPaths {
  std::filesystem::path metrics, trace;  ///< one of them may be empty
};
/// Throws ErrorCode::usage for what is not there.
[[nodiscard]] RunPaths run_paths(const std::string& given);

/// Without metrics it has a trace and no history. Throws ErrorCode::data for files that are something else, and
/// ErrorCode::io.
[[nodiscard]] RunFile read_run(const RunPaths& paths, const std::string& name);
/// Calls `take` with each line of a metrics file.
void for_each_record(const std::filesystem::path& metrics, const std::function<void(std::string_view)>& take);
[[nodiscard]] TraceSummary read_trace(const std::filesystem::path& path);

/// Records of steps as comma-separated values, with a line of names.
[[nodiscard]] std::string csv_header();
/// Empty for what is no record of a step.
[[nodiscard]] std::string csv_line(const std::string& run, std::string_view record);

}  // namespace ranvier::apps
