// Runs ranvier-generate like a user. One thread.
#pragma once

#include "tests/temporary_folder.hpp"
#include "tests/words.hpp"

#include <string>

namespace ranvier::tests {

struct Generated {
  int status = 0;
  std::string text;    ///< stdout
  std::string report;  ///< stderr
};

/// A shell splits `flags`. `folder` gets the report.
[[nodiscard]] inline Generated run_generator(const std::string& program, const std::string& flags,
                                             const TemporaryFolder& folder) {
  const std::string report = (folder.path() / "report.txt").string();
  const auto [status, text] = output_of_command(program + " " + flags + " 2>" + report);
  return {status, text, folder.read("report.txt")};
}

/// Requires a successful end; a failure prints the report.
inline Generated require_success(Generated generated) {
  INFO(generated.report);
  REQUIRE(generated.status == 0);
  return generated;
}

}  // namespace ranvier::tests
