// Writes trace events of several ranks to one file for Chrome or Perfetto. Callable from any thread.
#pragma once

#include "runtime/files/atomic_file.hpp"

#include <filesystem>
#include <span>
#include <string>

namespace ranvier::runtime {

/// Writes `events`, one text per rank, without empty ones. Throws ErrorCode::io; `retry` as for AtomicFile.
void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events,
                      AtomicFile::Retry retry = nullptr);

}  // namespace ranvier::runtime
