// Scripts that complete a program's flags, the names that their values have, and paths. Pure; any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>

namespace ranvier::apps {

/// For bash 4.1 and later, with the package bash-completion or without it. Programs are completed behind mpirun,
/// mpiexec and srun, too, unless these are completed by something else.
[[nodiscard]] std::string bash_completion(const Manual& manual);

/// For zsh 5, as a function of fpath or as what source reads.
[[nodiscard]] std::string zsh_completion(const Manual& manual);

}  // namespace ranvier::apps
