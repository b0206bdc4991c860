#include "runtime/trace/trace_file.hpp"

#include <string_view>
#include <utility>

namespace ranvier::runtime {

void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events,
                      AtomicFile::Retry retry) {
  AtomicFile file(path, std::move(retry));
  const auto append = [&file](std::string_view text) { file.append(text.data(), text.size()); };
  std::string_view before = "{\"traceEvents\":[\n";
  for (const std::string& rank : events) {
    if (rank.empty()) continue;
    append(before);
    append(rank);
    before = ",\n";
  }
  if (before != ",\n") append(before);
  append("\n]}\n");
  file.commit();
}

}  // namespace ranvier::runtime
