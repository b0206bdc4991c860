// Shell completion scripts for flags, their values and paths. Pure functions, callable from any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>

namespace ranvier::apps {

/// Script for bash 4.1 or later, with or without the package bash-completion. Also completes programs after mpirun,
/// mpiexec and srun, unless these have completions of their own.
[[nodiscard]] std::string bash_completion(const Manual& manual);

/// Script for zsh 5, for use in fpath or with source.
[[nodiscard]] std::string zsh_completion(const Manual& manual);

}  // namespace ranvier::apps
