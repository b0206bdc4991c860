// What a table of options tells about its flags: plain data, of which help texts, completion scripts and manual pages
// are made, so that all of them list the same. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

struct OptionFacts {
  std::string concern;      ///< the heading that it is listed under
  std::string name;         ///< without dashes
  std::string placeholder;  ///< of its value; empty: it has none
  std::string help;
  std::string default_text;        ///< in words; empty: there is nothing to say about it
  std::vector<std::string> words;  ///< values that have names; other values may be taken, too
  std::string details;             ///< for help that was asked for by heading, and manual pages; may be empty
  bool usual = false;              ///< most runs use it: in the help text without a heading
};

/// What values of a flag are in the file system, as its placeholder says: FILE, PATH, DIR or FOLDER, on their own or
/// among other words (NAME|FILE).
enum class PathKind { none, any, folder };
[[nodiscard]] PathKind path_kind(const OptionFacts& option);

/// Whether several values go between commas: LIST, or a placeholder with a comma in it (DIR[,DIR]).
[[nodiscard]] bool takes_list(const OptionFacts& option);

/// The help followed by its default, as help texts and manual pages have it.
[[nodiscard]] std::string help_with_default(const OptionFacts& option);

/// Headings as they are typed, each once in the order of the options: "Memory tiers" is memory-tiers.
[[nodiscard]] std::vector<std::string> concern_words(const std::vector<OptionFacts>& options);

/// Asks for help on all options, in place of a heading.
inline constexpr std::string_view all_concerns = "all";

/// The heading meant by `asked`, or all_concerns: in any case, with spaces or dashes between words, or the beginning of
/// one of its words if only one heading has such a word. Throws ErrorCode::usage with all headings for another text.
[[nodiscard]] std::string find_concern(const std::vector<OptionFacts>& options, std::string_view asked);

/// `text` cut at spaces into lines of at most `width` characters, where words are no longer.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// The options under their headings, 100 characters wide: those under `concern`; with all_concerns every option; with
/// an empty one the usual options and a line that says how to see the others, or every option if none is usual.
[[nodiscard]] std::string help_text(const std::vector<OptionFacts>& options, std::string_view concern = {});

}  // namespace ranvier::runtime
