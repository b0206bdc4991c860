// Reads a file with another program's reader, if Python has it. One thread.
#pragma once

#include "tests/test.hpp"

#include <sys/wait.h>

namespace ranvier::tests {

/// Output of tests/apps/read_with_others.py; nullopt, with a message: the reader is not installed. It is searched in
/// the Python of RANVIER_PYTHON, or else in the one that cmake/install_dependencies.sh installs, or the system's.
inline std::optional<std::string> read_with(const std::string& reader, const std::string& path) {
  const char* const named = std::getenv("RANVIER_PYTHON");
  const std::string python = named != nullptr                                    ? named
                             : std::filesystem::exists(RANVIER_REFERENCE_PYTHON) ? RANVIER_REFERENCE_PYTHON
                                                                                 : "python3";
  const CommandOutput output =
      output_of_command(python + " '" RANVIER_READ_WITH_OTHERS "' " + reader + " '" + path + "' 2>&1");
  if (WIFEXITED(output.status) && (WEXITSTATUS(output.status) == 77 || WEXITSTATUS(output.status) == 127)) {
    MESSAGE("skipped: " << output.text);
    return std::nullopt;
  }
  INFO(output.text);
  REQUIRE(output.status == 0);
  return output.text;
}

}  // namespace ranvier::tests
