// What ranvier-generate does, called as users call it. One thread.
#pragma once

#include "tests/temporary_folder.hpp"

#include <string>

namespace ranvier::tests {

struct Generated {
  int status = 0;
  std::string text;    ///< stdout
  std::string report;  ///< stderr
};

/// `flags` as a shell takes them. `folder` keeps the report.
[[nodiscard]] Generated run_generator(const std::string& program, const std::string& flags,
                                      const TemporaryFolder& folder);

}  // namespace ranvier::tests
