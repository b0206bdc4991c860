// What a program says about itself, as data: help text, manual page and completion scripts are made of it, so that all
// of them know the same flags. Pure; any thread.
//
//   declare_info(table, options.inquiry);              // the last concern of every program's table
//   …
//   if (options.inquiry.any()) fmt::print("{}\n", answer(options.inquiry, plan_manual()));
#pragma once

#include "runtime/options.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

enum class Shell { none, bash, zsh };

/// What was asked for instead of the program's work.
struct InfoRequest {
  bool help = false;
  std::string concern;  ///< the heading whose flags help lists, or "all"; empty: the usual flags
  bool version = false;
  Shell completion = Shell::none;
  bool man = false;

  [[nodiscard]] bool any() const { return help || version || completion != Shell::none || man; }
};

/// The heading "Program" with --help, --version, --completion and --man.
void declare_info(runtime::OptionTable& table, InfoRequest& info);
/// Whether one of these is called `name`: they are nothing that a run is made of.
[[nodiscard]] bool is_info_request(std::string_view name);

struct Manual {
  std::string program;
  std::string summary;                                     ///< "trains …": what follows the name
  std::vector<std::pair<std::string, std::string>> forms;  ///< how it is called, and maybe what that does
  std::string about;                                       ///< more sentences, each a paragraph; may be empty
  std::string status_1;                                    ///< what exit status 1 says; empty: it has none
  std::vector<runtime::OptionInfo> options;                ///< of help and manual page
  std::vector<runtime::OptionInfo> others = {};            ///< of another program, taken as well: completed only
  std::vector<std::string> commands = {};                  ///< that words without a flag may be
  runtime::PathKind arguments = runtime::PathKind::none;   ///< what else words without a flag may be
};

/// With a heading its flags only; otherwise, above the flags, what the program does and how it is called.
[[nodiscard]] std::string help_text(const Manual& manual, std::string_view concern = {});

/// The text that was asked for, without a new line at its end. `mpi` is what the program's MPI calls itself; empty: it
/// has none.
[[nodiscard]] std::string answer(const InfoRequest& info, const Manual& manual, const std::string& mpi = {});

}  // namespace ranvier::apps
