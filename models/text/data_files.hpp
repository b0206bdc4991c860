// Which files of a folder hold data: those in it and in its subfolders, hidden ones left out, in the order of their
// paths. Any thread.
#pragma once

#include <filesystem>
#include <vector>

namespace ranvier::models {

/// Those without a zero byte in their first 4096 that are not empty. Throws ErrorCode::io for a folder or file that
/// cannot be read, ErrorCode::data if there is none.
[[nodiscard]] std::vector<std::filesystem::path> text_files_in(const std::filesystem::path& folder);

/// Those called *.bin. Throws as text_files_in() does.
[[nodiscard]] std::vector<std::filesystem::path> token_files_in(const std::filesystem::path& folder);

}  // namespace ranvier::models
