#include "apps/program/build_info.hpp"
#include "apps/program/manual.hpp"
#include "apps/program/markup.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

/// Flags of the program, then flags of the other program; each name once.
std::vector<OptionInfo> all_options(const Manual& manual) {
  std::vector<OptionInfo> all = manual.options;
  for (const OptionInfo& other : manual.others) {
    const bool known = std::ranges::any_of(all, [&](const OptionInfo& each) { return each.name == other.name; });
    if (!known) all.push_back(other);
  }
  return all;
}

bool has_value(const OptionInfo& option) { return !option.placeholder.empty(); }

/// False for a flag with an optional value: after it, both its values and flags are completed.
bool needs_value(const OptionInfo& option) { return has_value(option) && option.placeholder.front() != '['; }

/// Name of the shell function: _ranvier_train for ranvier-train.
std::string function_name(const std::string& program) {
  std::string name = "_" + program;
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string single_quoted(std::string_view text) { return fmt::format("'{}'", escaped(text, {{'\'', "'\\''"}})); }

/// Bash code that completes a value, or a word without a flag.
std::string bash_values(const std::vector<std::string>& words, PathKind paths, bool list) {
  std::string code;
  if (!words.empty())
    code += fmt::format("_ranvier_words {} {}; ", list ? "," : "''",
                        single_quoted(fmt::format("{}", fmt::join(words, " "))));
  if (paths != PathKind::none)
    code += fmt::format("_ranvier_paths {} {}; ", list ? "," : "''", paths == PathKind::folder ? "-d" : "-f");
  return code;
}

// Readline splits words at =, so --flag=value arrives as three words. File names may contain spaces.
constexpr const char* bash_functions = R"(
# Values that follow the last comma of what is typed where they are lists, each behind what comes before it.
_ranvier_words() {
  local before= word
  [[ $1 == , && $cur == *,* ]] && before=${cur%,*},
  for word in $2; do
    [[ $before$word == "$cur"* ]] && COMPREPLY+=("$before$word")
  done
}

_ranvier_paths() {
  local before= path
  [[ $1 == , && $cur == *,* ]] && before=${cur%,*},
  [[ -z $before ]] && compopt -o filenames 2>/dev/null
  while IFS= read -r path; do
    COMPREPLY+=("$before$path")
  done < <(compgen "$2" -- "${cur#"$before"}")
}

# A program behind mpirun, with its own flags.
_ranvier_behind_launcher() {
  local i base
  for ((i = 1; i < COMP_CWORD; ++i)); do
    base=${COMP_WORDS[i]##*/}
    [[ $base == ranvier-* ]] || continue
    declare -F "_${base//-/_}" >/dev/null || _completion_loader "$base" 2>/dev/null
    declare -F "_${base//-/_}" >/dev/null && "_${base//-/_}"
    return
  done
}
)";

/// `text` as a description inside the brackets of _arguments.
std::string zsh_description(std::string_view text) {
  return escaped(text, {{'[', "\\["}, {']', "\\]"}, {'\\', "\\\\"}, {':', "\\:"}});
}

std::string zsh_action(const std::vector<std::string>& words, PathKind paths, bool list) {
  const std::string names = fmt::format("{}", fmt::join(words, " "));
  const char* const files = paths == PathKind::folder ? "_files -/" : "_files";
  if (list && paths != PathKind::none) return fmt::format("_sequence {}", files);
  if (list && !words.empty()) return fmt::format("_values -s , value {}", names);
  if (!words.empty() && paths != PathKind::none)  // leading space: _arguments calls it without its own options
    return fmt::format(R"zsh( _alternative "words\:value\:({})" "files\:file\:{}")zsh", names, files);
  if (!words.empty()) return fmt::format("({})", names);
  return paths == PathKind::none ? " " : files;
}

}  // namespace

std::string bash_completion(const Manual& manual) {
  const std::vector<OptionInfo> options = all_options(manual);
  const std::string function = function_name(manual.program);
  std::string flags, cases;
  for (const OptionInfo& option : options) {
    flags += fmt::format("{}--{}", flags.empty() ? "" : " ", option.name);
    if (!has_value(option)) continue;
    const std::string values = bash_values(option.words, path_kind(option), takes_list(option));
    if (!needs_value(option) && values.empty()) continue;
    cases += fmt::format("    --{}) {}{} ;;\n", option.name, values,
                         needs_value(option) ? "return" : "[[ $cur != -* ]] && return");
  }
  const std::string rest = bash_values(manual.commands, manual.arguments, false);
  std::string script = fmt::format("# Completion of {} {} for bash, made by {} --completion bash.\n",
                                   manual.program, build_info.version, manual.program);
  script += bash_functions;
  script += fmt::format(
      R"(
{0}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} flag=${{COMP_WORDS[COMP_CWORD - 1]}}
  COMPREPLY=()
  if [[ $cur == = ]]; then
    cur=
  elif [[ $flag == = ]] && ((COMP_CWORD > 1)); then
    flag=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  case $flag in
{1}  esac
  if [[ $cur == -* ]]; then
    _ranvier_words '' {2}
    return
  fi
  {3}
}}

complete -F {0} {4}
for _ranvier_launcher in mpirun mpiexec srun; do
  complete -p "$_ranvier_launcher" >/dev/null 2>&1 ||
    complete -o bashdefault -o default -F _ranvier_behind_launcher "$_ranvier_launcher"
done
unset _ranvier_launcher)",
      function, cases, single_quoted(flags), rest.empty() ? "_ranvier_words '' " + single_quoted(flags) : rest,
      manual.program);
  return script;
}

std::string zsh_completion(const Manual& manual) {
  const std::string function = "_" + manual.program;  // file name; zsh calls the function by it the first time
  std::string script = fmt::format(
      "#compdef {0}\n# Completion of {0} {1} for zsh, made by {0} --completion zsh.\n\n{2}() {{\n  _arguments",
      manual.program, build_info.version, function);
  const auto add = [&](const std::string& spec) { script += " \\\n    " + single_quoted(spec); };
  for (const OptionInfo& option : all_options(manual)) {
    const std::string about = zsh_description(help_with_default(option));
    std::string message = option.placeholder;
    std::erase_if(message, [](char c) { return c == ':' || c == '[' || c == ']'; });
    const std::string action = zsh_action(option.words, path_kind(option), takes_list(option));
    if (!has_value(option))
      add(fmt::format("--{}[{}]", option.name, about));
    else if (needs_value(option) || option.name != "help")
      add(fmt::format("--{}=[{}]:{}:{}", option.name, about, message, action));
    else
      add(fmt::format("--{}[{}]::{}:{}", option.name, about, message, action));
  }
  if (!manual.commands.empty() || manual.arguments != PathKind::none)
    add(fmt::format("*:argument:{}", zsh_action(manual.commands, manual.arguments, false)));
  return script + fmt::format(R"(
}}

if [ "$funcstack[1]" = {0} ]; then
  {0} "$@"
else
  compdef {0} {1}
fi)",
                              function, manual.program);
}

}  // namespace ranvier::apps
