// --trace: what all ranks did, as one file for Chrome or Perfetto. Any thread.
#pragma once

#include "runtime/clock.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace ranvier::apps {

/// Where it goes: to `path`, or beside an earlier run's that is there, where this one goes on after `step`, as
/// trace.from-500.json.
[[nodiscard]] std::string trace_path(const std::string& path, std::int64_t step);

/// Writes the events, one text per rank. On a full disk it waits up to `patience` for space. Returns why the file was
/// not written; empty: it was.
[[nodiscard]] std::string write_trace(const std::string& path, std::span<const std::string> events,
                                      runtime::Duration patience);

}  // namespace ranvier::apps
