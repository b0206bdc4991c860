// --trace: spans of all ranks in one file for Chrome or Perfetto. Callable from any thread.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace ranvier::apps {

/// Path of the trace: `path`, or trace.from-500.json next to it if an earlier run wrote trace.json and this run resumes
/// after step 500.
[[nodiscard]] std::string trace_path(const std::string& path, std::int64_t step);

/// Writes the events, one text per rank. On a full disk it waits up to `patience` for space. Returns the error; empty
/// if the file was written.
[[nodiscard]] std::string write_trace(const std::string& path, std::span<const std::string> events,
                                      runtime::Duration patience);

}  // namespace ranvier::apps
