// --trace: what all ranks did, as one file for Chrome or Perfetto. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ranvier::apps {

/// Where it goes: to `path`, or beside an earlier run's that is there, where this one goes on after `step`, as
/// trace.from-500.json.
[[nodiscard]] std::string trace_path(const std::string& path, std::int64_t step);

/// `events` has a rank's each. Returns why nothing was written, or nothing: a picture of a run is not worth the
/// run.
[[nodiscard]] std::string write_trace(const std::string& path, std::span<const std::string> events);

}  // namespace ranvier::apps
