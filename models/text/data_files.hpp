// Which files of a folder hold data: those in it and in its subfolders, in the order of their paths, and which it has
// beside them. Any thread.
#pragma once

#include "models/text/data_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace ranvier::models {

/// A file, or a hidden folder with all that is in it.
struct SkippedFile {
  std::filesystem::path path;
  std::string why;  ///< "an image (PNG)"
};

struct DataFiles {
  std::vector<DataFile> files;        ///< at least one
  std::vector<SkippedFile> left_out;  ///< in the order of their paths
};

/// Of formats that have tokens the files called *.bin, otherwise those that look_at() takes for text or JSON lines and
/// that have no zero byte in their first 4096. Hidden and empty files are left out, and of files whose names differ by
/// their split alone (train.jsonl and validation.jsonl, train/a.txt and test/b.txt) those that are not for training.
/// Throws ErrorCode::io for a folder or file that cannot be read, ErrorCode::data if none is taken. Throws that, too,
/// if data in formats that are not read outweigh the others.
[[nodiscard]] DataFiles data_files_in(const std::filesystem::path& folder, const TextReading& reading);

/// Those of a folder, or the one at `path`. Throws as that and recognise() do.
[[nodiscard]] DataFiles data_files_at(const std::filesystem::path& path, const TextReading& reading);

/// "left out: 12 files of texts/: a.png (an image (PNG)), c.txt (empty), and 10 more"; empty if none was.
[[nodiscard]] std::string left_out_text(const std::filesystem::path& folder,
                                        const std::vector<SkippedFile>& left_out);

}  // namespace ranvier::models
