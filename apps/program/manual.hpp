// Description of a program as data, the source of help text, manual page and completion scripts. Pure functions,
// callable from any thread.
//
//   declare_info(table, options.info);                 // the last concern of every program's table
//   …
//   if (options.info.any()) fmt::print("{}\n", answer(options.info, plan_manual()));
#pragma once

#include "apps/program/options.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

enum class Shell { none, bash, zsh };

/// Requested information, in place of the program's work.
struct InfoRequest {
  bool help = false;
  std::string concern;  ///< heading whose flags --help lists, or "all"; empty: usual flags
  bool version = false;
  Shell completion = Shell::none;
  bool man = false;

  [[nodiscard]] bool any() const { return help || version || completion != Shell::none || man; }
};

/// Declares the heading "Program" with --help, --version, --completion and --man.
void declare_info(OptionTable& table, InfoRequest& info);
/// True if `name` is one of these flags, which do not affect a run.
[[nodiscard]] bool is_info_request(std::string_view name);

struct Manual {
  std::string program;
  std::string summary;                                          ///< phrase after the name: "trains …"
  std::vector<std::pair<std::string, std::string>> forms = {};  ///< command lines, and optional explanations
  std::string about;                                            ///< more sentences; may be empty
  std::string status_1;                                         ///< meaning of exit status 1; empty: unused
  std::vector<OptionInfo> options;                              ///< flags in help and manual page
  std::vector<OptionInfo> others = {};     ///< accepted flags of another program, only completed
  std::vector<std::string> commands = {};  ///< commands, completed as words without a flag
  PathKind arguments = PathKind::none;     ///< paths accepted as words without a flag
};

/// With a heading, only its flags; otherwise summary, command lines and flags.
[[nodiscard]] std::string help_text(const Manual& manual, std::string_view concern = {});

/// Requested text without a final newline. `mpi`: name of the MPI library; empty: a program without MPI.
[[nodiscard]] std::string answer(const InfoRequest& info, const Manual& manual, const std::string& mpi = {});

/// Manual page for section 1, with the macros of man(7), in ASCII.
[[nodiscard]] std::string man_page(const Manual& manual);

/// Completion script for bash 4.1 or later, with or without the package bash-completion. Also completes programs after
/// mpirun, mpiexec and srun, unless these have completions of their own.
[[nodiscard]] std::string bash_completion(const Manual& manual);
/// Completion script for zsh 5, for use in fpath or with source.
[[nodiscard]] std::string zsh_completion(const Manual& manual);

}  // namespace ranvier::apps
