// What several ranks did (Trace::chrome_events()) as one file for Chrome or Perfetto. Any thread.
#pragma once

#include "runtime/atomic_file.hpp"

#include <filesystem>
#include <span>
#include <string>

namespace ranvier::runtime {

/// `events`: one text per rank; empty ones are left out. Throws ErrorCode::io; `retry` as for AtomicFile.
void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events,
                      AtomicFile::Retry retry = nullptr);

}  // namespace ranvier::runtime
