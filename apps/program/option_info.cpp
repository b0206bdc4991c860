#include "apps/program/option_info.hpp"

#include "runtime/base/error.hpp"

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/algorithm/string/classification.hpp>
#include <fmt/ranges.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

constexpr std::size_t help_width = 100;

/// "Memory tiers" as "memory-tiers".
std::string typed(std::string_view title) {
  std::string word(title);
  boost::to_lower(word);
  std::ranges::replace_if(word, boost::is_any_of(" _"), '-');
  return word;
}

/// Whether a word of the heading starts with `start`; both in lower case with dashes.
bool has_word_with(std::string_view heading, std::string_view start) {
  return heading.starts_with(start) || heading.find(fmt::format("-{}", start)) != std::string_view::npos;
}

std::vector<std::string> concerns_of(const std::vector<OptionInfo>& options) {
  std::vector<std::string> titles;
  for (const OptionInfo& option : options)
    if (std::ranges::find(titles, option.concern) == titles.end()) titles.push_back(option.concern);
  return titles;
}

}  // namespace

PathKind path_kind(const OptionInfo& option) {
  const auto has = [&](const char* word) { return option.placeholder.find(word) != std::string::npos; };
  if (has("FILE") || has("PATH")) return PathKind::any;
  return has("DIR") || has("FOLDER") ? PathKind::folder : PathKind::none;
}

bool takes_list(const OptionInfo& option) {
  return option.placeholder == "LIST" || option.placeholder.find(',') != std::string::npos;
}

std::string help_with_default(const OptionInfo& option) {
  if (option.placeholder.empty() || option.default_text.empty()) return option.help;
  return fmt::format("{} (default {})", option.help, option.default_text);
}

std::vector<std::string> concern_words(const std::vector<OptionInfo>& options) {
  std::vector<std::string> words;
  for (const std::string& title : concerns_of(options)) words.push_back(typed(title));
  return words;
}

std::string find_concern(const std::vector<OptionInfo>& options, std::string_view asked) {
  const std::string wanted = typed(asked);
  if (wanted == all_concerns) return wanted;
  std::vector<std::string> near;
  for (const std::string& title : concerns_of(options)) {
    if (typed(title) == wanted) return title;
    if (!wanted.empty() && has_word_with(typed(title), wanted)) near.push_back(title);
  }
  if (near.size() == 1) return near.front();
  fail(ErrorCode::usage, "--help {}: the help text has no such heading; use all, or one of {}", asked,
       fmt::join(concern_words(options), ", "));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == std::string_view::npos || cut == 0) cut = width;
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', cut)));
  }
  lines.emplace_back(text);
  return lines;
}

std::string help_text(const std::vector<OptionInfo>& options, std::string_view concern) {
  std::size_t column = 0;
  for (const OptionInfo& option : options)
    column = std::max(column, option.name.size() + option.placeholder.size() + 7);
  const auto usual = std::ranges::count_if(options, &OptionInfo::usual);
  const bool only_usual = concern.empty() && usual > 0;
  const bool one_concern = !concern.empty() && concern != all_concerns;
  std::string out;
  std::string_view heading;
  for (const OptionInfo& option : options) {
    if (one_concern ? option.concern != concern : only_usual && !option.usual) continue;
    if (heading != option.concern) {
      heading = option.concern;
      out += fmt::format("\n{}\n", heading);
    }
    std::string left = fmt::format("  --{} {}", option.name, option.placeholder);
    const auto print = [&](const std::string& text) {
      for (const std::string& line : wrapped(text, help_width - column)) {
        out += fmt::format("{:<{}}{}\n", left, column, line);
        left.clear();
      }
    };
    print(help_with_default(option));
    if (!concern.empty() && !option.details.empty()) print(option.details);
  }
  if (only_usual) {
    const std::string others =
        fmt::format("{} more flags: --help all, or --help with one of {}",
                    options.size() - static_cast<std::size_t>(usual), fmt::join(concern_words(options), ", "));
    out += fmt::format("\n{}\n", fmt::join(wrapped(others, help_width), "\n"));
  }
  return out;
}

}  // namespace ranvier::apps
