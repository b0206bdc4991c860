// What the fuzz targets share: a folder for the bytes that the fuzzer makes up, what a reader may answer to them,
// and what has to hold. A target is `LLVMFuzzerTestOneInput`; one thread.
#pragma once

#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace ranvier::fuzz {

/// Ends the program, so that the fuzzer keeps the input, unless `holds`.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

class InputFolder {
 public:
  InputFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ranvier-fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr, "a folder can be made");
    path_ = pattern;
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file of that content; returns its path.
  std::filesystem::path write(const char* name, std::string_view content) const {
    auto path = path_ / name;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(file >= 0, "a file can be made");
    require(::write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
            "a file can be written");
    ::close(file);
    return path;
  }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Takes one byte from the front, for a choice; 0 at the end.
[[nodiscard]] inline unsigned take_byte(std::string_view& input) {
  if (input.empty()) return 0;
  const auto byte = static_cast<std::uint8_t>(input.front());
  input.remove_prefix(1);
  return byte;
}

/// Reads input. It may be refused, but only for what it is, in a message that names `file`; nothing else may be
/// thrown.
template <typename Action>
void accepts_or_refuses(const std::string& file, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    const bool of_input =
        error.code() == ErrorCode::data || error.code() == ErrorCode::usage || error.code() == ErrorCode::io;
    if (of_input && std::string_view(error.what()).find(file) != std::string_view::npos) return;
    std::fprintf(stderr, "refused with code %s, not naming %s: %s\n", to_string(error.code()), file.c_str(),
                 error.what());
    std::abort();
  }
}

}  // namespace ranvier::fuzz
