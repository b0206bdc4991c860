#include "apps/train/files/trace_file.hpp"

#include "runtime/atomic_file.hpp"
#include "runtime/error.hpp"

namespace ranvier::apps {

std::string write_trace(const std::string& path, std::span<const std::string> events) {
  std::string text = "{\"traceEvents\":[\n";
  for (const std::string& rank : events) {
    if (rank.empty()) continue;
    if (text.back() != '\n') text += ",\n";
    text += rank;
  }
  text += "\n]}\n";
  try {
    runtime::AtomicFile file(path);
    file.append(text.data(), text.size());
    file.commit();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace ranvier::apps
