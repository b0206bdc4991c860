// Descriptions of options as plain data: the common source of help texts, completion scripts and manual pages. Pure
// functions, callable from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

struct OptionInfo {
  std::string concern;      ///< heading of the option's section
  std::string name;         ///< without dashes
  std::string placeholder;  ///< placeholder of the value; empty: no value
  std::string help;
  std::string default_text;        ///< default in words; empty: not shown
  std::vector<std::string> words;  ///< named values; other values may be valid, too
  std::string details;             ///< more, for help on a heading and for manual pages; may be empty
  bool usual = false;              ///< most runs use it: part of the help text without a heading
};

/// Kind of path that a flag takes, from its placeholder: FILE, PATH, DIR or FOLDER, alone or among other words
/// (NAME|FILE).
enum class PathKind { none, any, folder };
[[nodiscard]] PathKind path_kind(const OptionInfo& option);

/// Whether the value is a comma-separated list: LIST, or a placeholder with a comma (DIR[,DIR]).
[[nodiscard]] bool takes_list(const OptionInfo& option);

/// Help text followed by the default in parentheses.
[[nodiscard]] std::string help_with_default(const OptionInfo& option);

/// Headings as typed on the command line, each once in the order of the options: "Memory tiers" is memory-tiers.
[[nodiscard]] std::vector<std::string> concern_words(const std::vector<OptionInfo>& options);

/// Selects all options, in place of a heading.
inline constexpr std::string_view all_concerns = "all";

/// Heading that matches `asked`, or all_concerns: in any case, with blanks or dashes between words. The start of one of
/// its words is enough if it is unique. Otherwise throws ErrorCode::usage with all headings.
[[nodiscard]] std::string find_concern(const std::vector<OptionInfo>& options, std::string_view asked);

/// `text` broken at spaces into lines of at most `width` bytes; longer words are cut.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// The options under their headings, 100 characters wide: those under `concern`; with all_concerns every option. If it
/// is empty, the usual options and how to see the others, or every option if none is usual.
[[nodiscard]] std::string help_text(const std::vector<OptionInfo>& options, std::string_view concern = {});

}  // namespace ranvier::apps
