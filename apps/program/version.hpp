// --version, which every program has. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace ranvier::apps {

/// "ranvier-train 0.1.0", and in lines of their own the commit that was built, the devices that programs compute
/// on, and the libraries that they were built with. `mpi` is what the program's MPI calls itself; empty: it has
/// none.
[[nodiscard]] std::string version_text(std::string_view program, const std::string& mpi = {});

}  // namespace ranvier::apps
