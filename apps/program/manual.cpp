#include "apps/program/manual.hpp"

#include "apps/program/build_info.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace ranvier::apps {

void declare_info(OptionTable& table, InfoRequest& info) {
  const OptionTraits seldom{.plan = PlanRole::request},
      usual{.usual = std::ranges::any_of(table.facts(), &OptionInfo::usual), .plan = PlanRole::request};
  table.concern("Program");
  table.add({"help", "[HEADING]",
             "Print the usual flags, all flags (--help all), or the flags under one heading, as in --help tiers",
             help_of(info.help, info.concern)},
            usual);
  table.add({"version", "", "Print the version", switch_on(info.version)}, usual);
  table.add(
      {"completion", "bash|zsh", "Print a completion script for this shell",
       choice<Shell>(info.completion, {{"bash", Shell::bash}, {"zsh", Shell::zsh}, {"none", Shell::none}}), "none"},
      seldom);
  table.add(
      {"man", "", "Print the manual page's source; view it with PROGRAM --man | man -l -", switch_on(info.man)},
      seldom);
}

namespace {

/// "ranvier-train 0.1.0", then lines with commit, devices and libraries of the build.
std::string version_text(const std::string& program, const std::string& mpi) {
  return fmt::format("{} {}\ncommit: {}\ndevices: {}\nlibraries: {}{}{}", program, build_info.version,
                     build_info.commit, build_info.devices, mpi, mpi.empty() ? "" : ", ", build_info.libraries);
}

}  // namespace

bool is_info_request(std::string_view name) {
  constexpr std::array names{"help", "version", "completion", "man"};
  return std::ranges::find(names, name) != names.end();
}

std::string help_text(const Manual& manual, std::string_view concern) {
  constexpr std::size_t width = 100;
  if (!concern.empty() && concern != all_concerns) {
    const std::string text = help_text(manual.options, concern);
    return text.substr(1, text.size() - 2);  // without the newlines around it
  }
  std::string text;
  for (const std::string& line : wrapped(fmt::format("{} {}.", manual.program, manual.summary), width))
    text += line + '\n';
  std::size_t longest = 0;
  for (const auto& [form, meaning] : manual.forms) longest = std::max(longest, form.size());
  for (const auto& [form, meaning] : manual.forms)
    text += meaning.empty() ? fmt::format("  {}\n", form) : fmt::format("  {:<{}}  {}\n", form, longest, meaning);
  if (!manual.about.empty())
    for (const std::string& line : wrapped(manual.about, width)) text += line + '\n';
  if (!manual.status_1.empty())
    text += fmt::format("\nExit status: 0 done, 1 {}, 64 invalid flag; --man lists the others.\n", manual.status_1);
  text += help_text(manual.options, concern);
  text.pop_back();  // answers have no final newline
  return text;
}

std::string answer(const InfoRequest& info, const Manual& manual, const std::string& mpi) {
  if (info.help) return help_text(manual, info.concern);
  if (info.version) return version_text(manual.program, mpi);
  if (info.man) return man_page(manual);
  return info.completion == Shell::bash ? bash_completion(manual) : zsh_completion(manual);
}

}  // namespace ranvier::apps
