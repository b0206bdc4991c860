// Lists the data files of a folder and its subfolders, sorted by path, and the files that are skipped. Callable from
// any thread.
#pragma once

#include "models/text/data_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace ranvier::models {

/// A skipped file, or a hidden folder with its content.
struct SkippedFile {
  std::filesystem::path path;
  std::string why;  ///< reason: "an image (PNG)"
};

struct DataFiles {
  std::vector<DataFile> files;        ///< at least one
  std::vector<SkippedFile> left_out;  ///< in the order of their paths
};

/// Finds the files of a folder: for token formats those named *.bin, otherwise those that look_at() accepts as text
/// or JSON lines without a zero byte in the first 4096. Skips hidden and empty files. If names differ only by their
/// split (train.jsonl and validation.jsonl, train/a.txt and test/b.txt), only training files are used.
/// Throws ErrorCode::io for an unreadable folder or file. Throws ErrorCode::data if no file is left, or if data in
/// unsupported formats outweighs the rest.
[[nodiscard]] DataFiles data_files_in(const std::filesystem::path& folder, const TextReading& reading);

/// Data files of a folder, or the file at `path`. Throws like data_files_in() and recognise().
[[nodiscard]] DataFiles data_files_at(const std::filesystem::path& path, const TextReading& reading);

/// Like data_files_at(), but throws ErrorCode::data unless all are JSON lines, which the prompt or label field needs.
[[nodiscard]] DataFiles json_lines_at(const std::filesystem::path& path, const TextReading& reading);

/// "texts/: skipped 12 files: a.png (an image (PNG)), c.txt (empty), and 10 more"; empty if no file was skipped.
[[nodiscard]] std::string left_out_text(const std::filesystem::path& folder,
                                        const std::vector<SkippedFile>& left_out);

}  // namespace ranvier::models
