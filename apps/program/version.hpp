// Text of --version. Pure functions, callable from any thread.
#pragma once

#include <string>
#include <string_view>

namespace ranvier::apps {

/// "ranvier-train 0.1.0", then lines with commit, devices and libraries of the build. `mpi`: name of the MPI library;
/// empty: a program without MPI.
[[nodiscard]] std::string version_text(std::string_view program, const std::string& mpi = {});

}  // namespace ranvier::apps
