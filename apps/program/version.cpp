#include "apps/program/version.hpp"

#include "apps/program/build_facts.hpp"

#include <fmt/format.h>

namespace ranvier::apps {

std::string version_text(std::string_view program, const std::string& mpi) {
  return fmt::format("{} {}\ncommit: {}\ndevices: {}\nlibraries: {}{}{}", program, build_facts.version,
                     build_facts.commit, build_facts.devices, mpi, mpi.empty() ? "" : ", ", build_facts.libraries);
}

}  // namespace ranvier::apps
