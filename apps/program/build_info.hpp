// Build information from CMake, in a generated source file (cmake/RanvierBuildFacts.cmake). A new commit recompiles
// only that file.
#pragma once

namespace ranvier::apps {

struct BuildInfo {
  const char* version;    ///< "0.1.0"
  const char* commit;     ///< "0123456789ab", "0123456789ab-dirty" if changed, "unknown" outside a checkout
  const char* devices;    ///< "cpu, cuda (toolkit 13.0, for 80;90)"
  const char* libraries;  ///< "Boost 1.81.0, fmt 9.1.0, …"
};

extern const BuildInfo build_info;

}  // namespace ranvier::apps
