#include "apps/files/trace_output.hpp"

#include "apps/files/disk_retry.hpp"
#include "apps/program/flag_names.hpp"
#include "runtime/base/error.hpp"
#include "runtime/trace/trace.hpp"

#include <filesystem>
#include <system_error>

namespace ranvier::apps {

std::string trace_path(const std::string& path, std::int64_t step) {
  std::error_code unknown;
  if (step == 0 || !std::filesystem::is_regular_file(path, unknown)) return path;
  std::filesystem::path beside(path);
  const std::string extension = beside.extension().string();
  return beside.replace_extension(fmt::format(".from-{}{}", step, extension)).string();
}

std::string write_trace(const std::string& path, std::span<const std::string> events, runtime::Duration patience) {
  std::size_t bytes = 0;
  for (const std::string& rank : events) bytes += rank.size();
  try {
    runtime::write_trace_file(path, events, DiskRetry(patience, "the trace takes", bytes));
  } catch (const Error& error) {
    return message_of(error);
  }
  return {};
}

}  // namespace ranvier::apps
