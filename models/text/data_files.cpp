#include "models/text/data_files.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <fstream>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t text_probe_bytes = 4096;

bool is_text(const fs::path& path) {
  std::array<char, text_probe_bytes> start;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::io, "{}: cannot be opened; check its permissions", path.string());
  file.read(start.data(), start.size());
  const auto end = start.begin() + file.gcount();
  return end != start.begin() && std::find(start.begin(), end, '\0') == end;
}

template <typename Takes>
std::vector<fs::path> files_in(const fs::path& folder, const char* what, Takes&& takes) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && takes(path)) paths.push_back(path);
  }
  if (error) fail(ErrorCode::io, "{}: the folder cannot be read: {}", folder.string(), error.message());
  if (paths.empty())
    fail(ErrorCode::data, "{}: the folder has no {}: give another, or a --token-format", folder.string(), what);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<fs::path> text_files_in(const fs::path& folder) { return files_in(folder, "text files", is_text); }

std::vector<fs::path> token_files_in(const fs::path& folder) {
  return files_in(folder, ".bin files", [](const fs::path& path) { return path.extension() == ".bin"; });
}

}  // namespace ranvier::models
