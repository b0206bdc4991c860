// Runs ranvier-generate like a user. One thread.
#pragma once

#include "tests/temporary_folder.hpp"

#include <string>

namespace ranvier::tests {

struct Generated {
  int status = 0;
  std::string text;    ///< stdout
  std::string report;  ///< stderr
};

/// A shell splits `flags`. `folder` gets the report.
[[nodiscard]] Generated run_generator(const std::string& program, const std::string& flags,
                                      const TemporaryFolder& folder);

}  // namespace ranvier::tests
