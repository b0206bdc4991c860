// Reads a file with another program's reader, if Python has it. One thread.
#pragma once

#include "tests/test.hpp"

#include <sys/wait.h>

#include <cstdio>

namespace ranvier::tests {

/// Output of tests/apps/read_with_others.py; nullopt, with a message: the reader is not installed. It is searched in
/// the Python of RANVIER_PYTHON, or else in the one that cmake/install_dependencies.sh installs, or the system's.
inline std::optional<std::string> read_with(const std::string& reader, const std::string& path) {
  const char* const named = std::getenv("RANVIER_PYTHON");
  const std::string python = named != nullptr                                    ? named
                             : std::filesystem::exists(RANVIER_REFERENCE_PYTHON) ? RANVIER_REFERENCE_PYTHON
                                                                                 : "python3";
  const std::string command = python + " '" RANVIER_READ_WITH_OTHERS "' " + reader + " '" + path + "' 2>&1";
  std::FILE* const output = ::popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  std::string text;
  std::array<char, 4096> some;
  while (const std::size_t bytes = std::fread(some.data(), 1, some.size(), output)) text.append(some.data(), bytes);
  const int status = ::pclose(output);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
    MESSAGE("skipped: " << text);
    return std::nullopt;
  }
  INFO(text);
  REQUIRE(status == 0);
  return text;
}

}  // namespace ranvier::tests
