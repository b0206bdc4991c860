// A temporary folder for a test that needs files.
#pragma once

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace ranvier::tests {

/// All bytes of a file; empty if it cannot be read.
[[nodiscard]] inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ranvier-test-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file with that content; returns its path.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  [[nodiscard]] std::string read(std::string_view name) const { return read_file(path_ / name); }

 private:
  std::filesystem::path path_;
};

/// For TEST_CASE_FIXTURE.
struct InFolder {
  TemporaryFolder folder;

  [[nodiscard]] std::string file(std::string_view name) const { return (folder.path() / name).string(); }
};

/// Changes one byte of a file in place: fast enough to do it for every byte.
inline void overwrite(const std::filesystem::path& path, std::size_t offset, char byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset)).put(byte);
}

}  // namespace ranvier::tests
