// What several ranks did (Trace::chrome_events()) as one file for Chrome or Perfetto. Any thread.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace ranvier::runtime {

/// `events` has a rank's each; empty ones are left out. Throws ErrorCode::io as AtomicFile does.
void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events);

}  // namespace ranvier::runtime
