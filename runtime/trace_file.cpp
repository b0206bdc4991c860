#include "runtime/trace_file.hpp"

#include "runtime/atomic_file.hpp"

namespace ranvier::runtime {

void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events) {
  std::string text = "{\"traceEvents\":[\n";
  for (const std::string& rank : events) {
    if (rank.empty()) continue;
    if (text.back() != '\n') text += ",\n";
    text += rank;
  }
  text += "\n]}\n";
  AtomicFile file(path);
  file.append(text.data(), text.size());
  file.commit();
}

}  // namespace ranvier::runtime
