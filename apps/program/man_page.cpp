#include "apps/program/build_info.hpp"
#include "apps/program/manual.hpp"
#include "apps/program/markup.hpp"
#include "runtime/base/error.hpp"

#include <boost/algorithm/string/case_conv.hpp>
#include <fmt/core.h>

#include <cstdint>
#include <utility>

namespace ranvier::apps {
namespace {

/// Returns the code point at `at` and advances `at`. Texts are valid UTF-8.
std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(at++);
  std::uint32_t code = first < 0x80 ? first : first < 0xe0 ? first & 0x1f : first < 0xf0 ? first & 0x0f : first & 7;
  while (first >= 0x80 && at < text.size() && (byte(at) & 0xc0) == 0x80) code = code << 6 | (byte(at++) & 0x3f);
  return code;
}

/// Escapes a line of text for roff; dashes stay ASCII, so that they can be copied.
std::string roff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code_point(text, at);
    const char c = static_cast<char>(code);
    out +=
        code >= 0x80
            ? fmt::format("\\[u{:04X}]", code)
            : escaped(
                  {&c, 1},
                  {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}});
  }
  return out;
}

/// Wraps at 80 characters, since some readers refuse long lines.
std::string paragraph(std::string_view text) {
  std::string out;
  for (const std::string& line : wrapped(text, 80)) out += roff(line) + '\n';
  return out;
}

std::string see_also(std::string_view program) {
  std::string others;
  for (const std::string_view each : {"ranvier-bench", "ranvier-checkpoint", "ranvier-generate", "ranvier-plan",
                                      "ranvier-report", "ranvier-tokenize", "ranvier-train"}) {
    if (each == program) continue;
    others += fmt::format("{}.BR {} (1)", others.empty() ? "" : ",\n", roff(each));
  }
  return others + "\n";
}

}  // namespace

std::string man_page(const Manual& manual) {
  const std::pair<int, const char*> statuses[] = {
      {0, "done"},
      {exit_code(ErrorCode::usage), "invalid flag: correct it as the message explains"},
      {exit_code(ErrorCode::data), "invalid content of a file"},
      {exit_code(ErrorCode::internal), "internal error: report it"},
      {exit_code(ErrorCode::memory), "not enough memory"},
      {exit_code(ErrorCode::device), "device failure: resume with --resume auto, if necessary on other nodes"},
      {exit_code(ErrorCode::numeric), "non-finite values, loss spikes or a replica mismatch"},
      {exit_code(ErrorCode::io), "file that cannot be opened, read or written"},
      {stopped_exit_code, "stopped before the last step: resume with --resume auto"},
      {exit_code(ErrorCode::transport), "failure of a peer or message: resume with --resume auto"},
  };
  const std::string name = roff(manual.program);
  std::string page = fmt::format(".TH {} 1 \"\" \"Ranvier {}\" \"User Commands\"\n",
                                 roff(boost::to_upper_copy(manual.program)), build_info.version);
  page += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", name, roff(manual.summary));
  for (std::size_t i = 0; i < manual.forms.size(); ++i)
    page += (i > 0 ? ".br\n" : "") + roff(manual.forms[i].first) + '\n';
  page += ".SH DESCRIPTION\n" + paragraph(manual.program + " " + manual.summary + ".");
  if (!manual.about.empty()) page += ".PP\n" + paragraph(manual.about);
  for (const auto& [form, meaning] : manual.forms)
    if (!meaning.empty()) page += fmt::format(".TP\n.B {}\n{}", roff(form), paragraph(meaning));
  page += ".SH OPTIONS\n";
  std::string_view heading;
  for (const OptionInfo& option : manual.options) {
    if (heading != option.concern) page += fmt::format(".SS {}\n", roff(option.concern));
    heading = option.concern;
    page += fmt::format(".TP\n\\fB\\-\\-{}\\fR", roff(option.name));
    if (!option.placeholder.empty()) page += fmt::format(" \\fI{}\\fR", roff(option.placeholder));
    page += '\n' + paragraph(help_with_default(option));
    if (!option.details.empty()) page += paragraph(option.details);
  }
  page += ".SH EXIT STATUS\n";
  for (const auto& [number, meaning] : statuses) {
    page += fmt::format(".TP\n{}\n{}", number, paragraph(meaning));
    if (number == 0 && !manual.status_1.empty()) page += fmt::format(".TP\n1\n{}", paragraph(manual.status_1));
  }
  page += ".SH SEE ALSO\n" + see_also(manual.program);
  page.pop_back();
  return page;
}

}  // namespace ranvier::apps
