#include "models/text/data_files.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <variant>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

std::uintmax_t bytes_of(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? 1 : bytes;  // reading reports the error
}

constexpr std::size_t zero_probe_bytes = 4096;
constexpr std::size_t max_named = 5;

using Taken = std::variant<DataFile, FormatError>;

Taken take_tokens(const fs::path& path, TokenFormat format) {
  if (path.extension() != ".bin") return FormatError{"not named .bin", {}};
  return DataFile{path, format};
}

Taken take_text(const fs::path& path, const TextReading& reading) {
  if (bytes_of(path) == 0) return FormatError{"empty", {}};
  const std::string anyway = fmt::format("name their format with {}; {} text reads only the other files",
                                         reading.format_flag, reading.format_flag);
  const bool automatic = reading.format == TokenFormat::automatic;
  if (automatic && path.extension() == ".bin") return FormatError{"a .bin with tokens, next to text", anyway, true};
  auto seen = look_at(path, reading);
  const auto* const file = std::get_if<DataFile>(&seen);
  if (file == nullptr) return seen;
  if (has_tokens(file->format)) return FormatError{"tokens, next to text", anyway, true};
  if (file->compression != Compression::none) return seen;
  const std::size_t zero = runtime::MemoryMap(path).text().substr(0, zero_probe_bytes).find('\0');
  if (zero != std::string_view::npos) return FormatError{fmt::format("not text: zero byte at offset {}", zero), {}};
  return seen;
}

/// Whether one of these files next to it has its name with another extension, or with one more.
bool is_converted(const fs::path& original, const std::vector<DataFile>& files) {
  const std::string stem = original.stem().string() + ".";
  return std::any_of(files.begin(), files.end(), [&](const DataFile& file) {
    return file.path.parent_path() == original.parent_path() && file.path.filename().string().starts_with(stem);
  });
}

enum class Split : std::uint8_t { none, training, held_out };

Split split_of(std::string_view word) {
  constexpr std::array held_out{"val", "valid", "validation", "dev", "eval", "test", "heldout"};
  if (word == "train" || word == "training") return Split::training;
  return std::find(held_out.begin(), held_out.end(), word) != held_out.end() ? Split::held_out : Split::none;
}

struct SplitName {
  Split split = Split::none;
  std::string others;  ///< the path, up to a folder for a split, without that word and without numbers
};

/// By the first word of the path that names a split, as Hugging Face, llm.c, nanoGPT and WikiText have them.
SplitName split_name(const fs::path& relative) {
  SplitName name;
  for (const fs::path& part : relative) {
    std::string text = part.string();
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find_first_of("-_.", begin), text.size());
      const std::string word = text.substr(begin, end - begin);
      begin = end + 1;
      const Split split = name.split == Split::none ? split_of(word) : Split::none;
      if (split != Split::none) {
        name.split = split;
        name.others += "*.";
      } else if (word != "of" && word.find_first_not_of("0123456789") != std::string::npos) {
        name.others += word + '.';
      }
    }
    if (name.split != Split::none) break;
    name.others += '/';
  }
  return name;
}

/// Whether files of this name are data rather than source code, in which test.py has nothing to do with splits.
bool is_called_data(const DataFile& file) {
  constexpr std::array names{"", ".txt", ".text", ".tokens", ".raw", ".gz", ".zst", ".zstd"};
  return file.format != TokenFormat::text ||
         std::find(names.begin(), names.end(), file.path.extension().string()) != names.end();
}

void leave_out_held_out(const fs::path& folder, DataFiles& found) {
  std::vector<SplitName> names;
  std::map<std::string, fs::path> training;
  for (const DataFile& file : found.files) {
    const fs::path relative = file.path.lexically_relative(folder);
    names.push_back(is_called_data(file) ? split_name(relative) : SplitName());
    if (names.back().split == Split::training) training.emplace(names.back().others, relative);
  }
  std::vector<DataFile> kept;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto counterpart = training.find(names[i].others);
    if (names[i].split != Split::held_out || counterpart == training.end())
      kept.push_back(std::move(found.files[i]));
    else
      found.left_out.push_back(
          {found.files[i].path,
           fmt::format("name suggests that it is not for training, unlike {}", counterpart->second.string())});
  }
  found.files = std::move(kept);
}

/// Whether the file is the index of a token file in the same folder.
bool belongs_to_tokens(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".idx" && fs::exists(fs::path(path).replace_extension(".bin"), ignored);
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
  if (error) fail(ErrorCode::io, "{}: cannot read the folder: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  std::vector<std::pair<fs::path, FormatError>> unread_data;
  std::uintmax_t taken_bytes = 0;
  for (const fs::directory_entry& one : entries) {
    std::error_code ignored;
    if (one.is_directory(ignored) && !one.is_symlink(ignored)) continue;
    if (tokens && belongs_to_tokens(one.path())) continue;
    Taken taken = !one.is_regular_file(ignored) ? FormatError{"not a regular file", {}}
                  : tokens                      ? take_tokens(one.path(), reading.format)
                                                : take_text(one.path(), reading);
    if (auto* const refusal = std::get_if<FormatError>(&taken)) {
      if (refusal->data) unread_data.emplace_back(one.path(), *refusal);
      found.left_out.push_back({one.path(), std::move(refusal->what)});
    } else {
      taken_bytes += bytes_of(one.path());
      found.files.push_back(std::move(std::get<DataFile>(taken)));
    }
  }
  std::erase_if(unread_data, [&](const auto& one) { return is_converted(one.first, found.files); });
  std::uintmax_t unread_bytes = 0, largest_bytes = 0;
  const std::pair<fs::path, FormatError>* largest = nullptr;
  for (const auto& one : unread_data) {
    const std::uintmax_t size = bytes_of(one.first);
    unread_bytes += size;
    if (size >= largest_bytes) largest_bytes = size, largest = &one;
  }
  if (unread_bytes > taken_bytes)
    fail(ErrorCode::data, "{}: {} bytes have unsupported formats, but only {} bytes are text: {}: {}; {}",
         folder.string(), unread_bytes, taken_bytes, largest->first.string(), largest->second.what,
         largest->second.remedy);
  leave_out_held_out(folder, found);
  std::sort(found.left_out.begin(), found.left_out.end(),
            [](const SkippedFile& a, const SkippedFile& b) { return a.path < b.path; });
  if (found.files.empty()) {
    const std::string left_out = left_out_text(folder, found.left_out);
    fail(ErrorCode::data, "{}: the folder has no {}; use another folder or {}{}{}", folder.string(),
         tokens ? ".bin files" : "text files", reading.format_flag, left_out.empty() ? "" : "; ", left_out);
  }
  return found;
}

DataFiles data_files_at(const fs::path& path, const TextReading& reading) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return data_files_in(path, reading);
  return {{recognise(path, reading)}, {}};
}

DataFiles json_lines_at(const fs::path& path, const TextReading& reading) {
  const bool labels = reading.prompt_field.empty();
  DataFiles found = data_files_at(path, reading);
  for (const DataFile& file : found.files)
    if (file.format != TokenFormat::jsonl)
      fail(ErrorCode::data, "{0}: {1} {2} needs JSON lines; use files whose names end in .jsonl, or remove {1}",
           file.path.string(), labels ? "`label_field`" : "`prompt_field`",
           labels ? reading.label_field : reading.prompt_field);
  return found;
}

std::string left_out_text(const fs::path& folder, const std::vector<SkippedFile>& left_out) {
  if (left_out.empty()) return {};
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(left_out.size(), max_named); ++i)
    named.push_back(fmt::format("{} ({})", left_out[i].path.lexically_relative(folder).string(), left_out[i].why));
  if (left_out.size() > max_named) named.push_back(fmt::format("and {} more", left_out.size() - max_named));
  return fmt::format("{}: skipped {} file{}: {}", folder.string(), left_out.size(), left_out.size() > 1 ? "s" : "",
                     fmt::join(named, ", "));
}

}  // namespace ranvier::models
