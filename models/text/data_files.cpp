#include "models/text/data_files.hpp"

#include "runtime/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t zero_probe_bytes = 4096;
constexpr std::size_t most_named = 5;

/// Where the first zero byte is, if it is near the beginning.
std::optional<std::size_t> zero_byte(const fs::path& path) {
  std::array<char, zero_probe_bytes> start;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::io, "{}: cannot be opened; check its permissions", path.string());
  file.read(start.data(), start.size());
  const auto* const end = start.data() + file.gcount();
  const auto* const zero = std::find(static_cast<const char*>(start.data()), end, '\0');
  return zero == end ? std::nullopt : std::optional(static_cast<std::size_t>(zero - start.data()));
}

/// Why the file is left out; empty: `to` has it.
std::string take_tokens(const fs::path& path, TokenFormat format, std::vector<DataFile>& to) {
  if (path.extension() != ".bin") return "not called .bin";
  to.push_back({path, format});
  return {};
}

std::string take_text(const fs::path& path, const TextReading& reading, std::vector<DataFile>& to) {
  std::error_code ignored;
  if (fs::file_size(path, ignored) == 0 && !ignored) return "empty";
  const bool automatic = reading.format == TokenFormat::automatic;
  if (automatic && path.extension() == ".bin") return "a .bin, as of tokens, beside text";
  auto seen = look_at(path, reading);
  if (const auto* const refusal = std::get_if<Refusal>(&seen)) return refusal->what;
  auto& file = std::get<DataFile>(seen);
  if (has_tokens(file.format)) return "tokens, beside text";
  if (file.compression == Compression::none)
    if (const auto zero = zero_byte(path)) return fmt::format("no text: a zero byte at offset {}", *zero);
  to.push_back(std::move(file));
  return {};
}

/// An index that the tokens beside it are read with.
bool belongs_to_tokens(const fs::path& path) {
  fs::path data = path;
  std::error_code ignored;
  return path.extension() == ".idx" && fs::exists(data.replace_extension(".bin"), ignored);
}

}  // namespace

DataFiles data_files_in(const fs::path& folder, const TextReading& reading) {
  const bool tokens = has_tokens(reading.format);
  std::vector<fs::directory_entry> entries;
  DataFiles found;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with('.')) {
      found.left_out.push_back({entry->path(), "hidden"});
      entry.disable_recursion_pending();
      continue;
    }
    entries.push_back(*entry);
  }
  if (error) fail(ErrorCode::io, "{}: the folder cannot be read: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  for (const fs::directory_entry& one : entries) {
    std::error_code ignored;
    if (one.is_directory(ignored) && !one.is_symlink(ignored)) continue;
    if (tokens && belongs_to_tokens(one.path())) continue;
    std::string why = !one.is_regular_file(ignored) ? "no regular file"
                      : tokens                      ? take_tokens(one.path(), reading.format, found.files)
                                                    : take_text(one.path(), reading, found.files);
    if (!why.empty()) found.left_out.push_back({one.path(), std::move(why)});
  }
  std::sort(found.left_out.begin(), found.left_out.end(),
            [](const LeftOut& a, const LeftOut& b) { return a.path < b.path; });
  if (found.files.empty()) {
    const std::string left_out = left_out_text(folder, found.left_out);
    fail(ErrorCode::data, "{}: the folder has no {}: give another, or a {}{}{}", folder.string(),
         tokens ? ".bin files" : "text files", reading.format_flag, left_out.empty() ? "" : "; ", left_out);
  }
  return found;
}

DataFiles data_files_at(const fs::path& path, const TextReading& reading) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return data_files_in(path, reading);
  return {{recognise(path, reading)}, {}};
}

std::string left_out_text(const fs::path& folder, const std::vector<LeftOut>& left_out) {
  if (left_out.empty()) return {};
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(left_out.size(), most_named); ++i)
    named.push_back(fmt::format("{} ({})", left_out[i].path.lexically_relative(folder).string(), left_out[i].why));
  if (left_out.size() > most_named) named.push_back(fmt::format("and {} more", left_out.size() - most_named));
  return fmt::format("left out of {}: {} file{}: {}", folder.string(), left_out.size(),
                     left_out.size() > 1 ? "s" : "", fmt::join(named, ", "));
}

}  // namespace ranvier::models
