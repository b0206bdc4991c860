// What CMake knows of a build. It writes the values into a source file of their own, so that another commit
// compiles that one and nothing else (cmake/RanvierBuildFacts.cmake).
#pragma once

namespace ranvier::apps {

struct BuildInfo {
  const char* version;    ///< "0.1.0"
  const char* commit;     ///< "0123456789ab", "0123456789ab-dirty" with changes since, "unknown" outside a checkout
  const char* devices;    ///< "cpu, cuda (toolkit 13.0, for 80;90)"
  const char* libraries;  ///< "Boost 1.81.0, fmt 9.1.0, …"
};

extern const BuildInfo build_info;

}  // namespace ranvier::apps
