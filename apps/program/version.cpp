#include "apps/program/version.hpp"

#include "apps/program/build_info.hpp"

#include <fmt/format.h>

namespace ranvier::apps {

std::string version_text(std::string_view program, const std::string& mpi) {
  return fmt::format("{} {}\ncommit: {}\ndevices: {}\nlibraries: {}{}{}", program, build_info.version,
                     build_info.commit, build_info.devices, mpi, mpi.empty() ? "" : ", ", build_info.libraries);
}

}  // namespace ranvier::apps
