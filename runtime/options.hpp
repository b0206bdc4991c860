// Options by name. A program declares each of them once, bound to a field of a plain struct; a table of them
// reads the command line and a config file (`key = value` lines, the same words as the flags, `#` comments;
// flags win), writes the help text by concern, and writes every value back as text for the start table and
// for comparing ranks.
//
//   OptionTable table;
//   table.concern("optimizer");
//   table.add({.name = "steps", .placeholder = "N", .help = "how long", .binding = whole(options.steps, 1)});
//   table.parse(argc, argv);
//
// Options are read in the order of their declaration, so that one may set what later ones override (a
// preset). All errors are ErrorCode::usage and name flag, value and remedy. Bound fields outlive the table.
// One thread at a time.
#pragma once

#include "runtime/error.hpp"
#include "runtime/option_facts.hpp"

#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::runtime {

/// The two directions between a field and its text.
struct OptionBinding {
  /// Sets the field. Returns what a value must be ("a whole number from 1 to 8") if `text` is not one.
  std::function<std::optional<std::string>(const std::string& text)> read;
  std::function<std::string()> write;
  bool is_switch = false;          ///< the flag alone means "on"
  std::vector<std::string> words;  ///< values that have names, for who completes what is typed
  bool names_concern = false;      ///< its value is a heading of the help text, in one word or several (help_of())
};

struct Option {
  std::string name;         ///< without dashes
  std::string placeholder;  ///< of its value in the help text; empty for a switch
  std::string help;
  OptionBinding binding;
  std::string default_text;  ///< what the help text shows as the default; empty: what the field holds
  bool per_rank = false;     ///< may differ between ranks: left out of the hash
  std::string details = {};  ///< more, for help that is asked for by heading, and manual pages
};

/// One line of what a run resolved.
struct ResolvedOption {
  std::string concern;
  std::string name;
  std::string value;
  bool per_rank = false;
  bool is_switch = false;
};

class OptionTable {
 public:
  /// Options declared from here on belong to this heading of the help text.
  void concern(std::string title);
  void add(Option option);
  /// More about the option that was added last, for help that is asked for by heading, and manual pages.
  void details(std::string text) { options_.back().option.details = std::move(text); }
  /// Options of the help text that has no heading. Without this call it has all options.
  void usual(std::vector<std::string_view> names) { usual_ = std::move(names); }
  /// Arguments that follow no flag go to `field`, in order; without this they are refused.
  void rest(std::vector<std::string>& field) { rest_ = &field; }

  /// Reads the flags and then, if one of the options is "config" and was given, that file. -h is short for --help.
  void parse(int argc, const char* const* argv);

  /// Whether the last parse() met the option, as a flag or as a key.
  [[nodiscard]] bool given(std::string_view name) const;
  /// Those that it met, in the order of their declaration.
  [[nodiscard]] std::vector<std::string> given() const;

  [[nodiscard]] std::string help(std::string_view usage) const;
  [[nodiscard]] std::vector<OptionFacts> facts() const;
  [[nodiscard]] std::vector<ResolvedOption> resolved() const;

 private:
  struct Declared {
    Option option;
    std::string concern;
    std::string default_text;
    std::string text;    // as given
    std::string origin;  // "--steps" or "steps in run.conf"; empty: not given
  };

  [[nodiscard]] bool knows(std::string_view name) const;
  void read_flags(int argc, const char* const* argv);
  void read_file(const std::string& path);
  void set(std::string_view name, std::string text, std::string origin, bool wins);
  [[nodiscard]] std::string advice(std::string_view unknown) const;
  [[nodiscard]] std::string advice_for_key(std::string_view unknown) const;
  [[nodiscard]] const Declared& at(std::string_view name) const;
  [[nodiscard]] Declared* at_concern();

  std::vector<Declared> options_;
  std::vector<std::string_view> usual_;
  std::string concern_;
  std::vector<std::string>* rest_ = nullptr;
};

/// FNV-1a over names and values, without those that may differ between ranks.
[[nodiscard]] std::uint64_t hash_of(const std::vector<ResolvedOption>& options);

/// "512MiB", "1.5GiB", "4096" → bytes; empty if it is no size.
[[nodiscard]] std::optional<std::size_t> parse_bytes(std::string_view text);
/// The inverse: the largest unit that divides.
[[nodiscard]] std::string bytes_text(std::size_t bytes);

/// "90s", "30m", "1h30m", "2d": whole numbers with units from the largest to the smallest; empty if it is no such
/// thing.
[[nodiscard]] std::optional<std::chrono::seconds> parse_duration(std::string_view text);
/// The inverse; "0s" for none.
[[nodiscard]] std::string duration_text(std::chrono::seconds duration);

/// The candidate that somebody who wrote `name` meant: with the fewest edits (insert, delete, replace, swap
/// neighbours) where they are few, or else one whose words are all in `name`, or the other way round.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name,
                                                      const std::vector<std::string>& candidates);

/// An integer from `low` to `high`.
template <std::integral T>
[[nodiscard]] OptionBinding whole(T& field, std::type_identity_t<T> low,
                                  std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
  return {.read = [&field, low, high](const std::string& text) -> std::optional<std::string> {
            T value{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high) {
              field = value;
              return {};
            }
            // The bound of the type is worth a word to those alone who went beyond it.
            if (high == std::numeric_limits<T>::max() && error != std::errc::result_out_of_range)
              return fmt::format("a whole number, at least {}", low);
            return fmt::format("a whole number from {} to {}", low, high);
          },
          .write = [&field] { return fmt::format("{}", field); }};
}

/// A number from `low` to `high`, or below `high` if that is excluded.
template <std::floating_point T>
[[nodiscard]] OptionBinding real(T& field, std::type_identity_t<T> low,
                                 std::type_identity_t<T> high = std::numeric_limits<T>::max(),
                                 bool high_excluded = false) {
  return {.read = [=, &field](const std::string& text) -> std::optional<std::string> {
            T value{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool in_range = value >= low && (high_excluded ? value < high : value <= high);
            if (error == std::errc{} && end == text.data() + text.size() && in_range) {
              field = value;
              return {};
            }
            if (error == std::errc::result_out_of_range)
              return fmt::format("a number that is not out of range, from {} to {:.3g}", low, high);
            if (high == std::numeric_limits<T>::max()) return fmt::format("a number, at least {}", low);
            return fmt::format("a number from {} to {}{}", low, high, high_excluded ? " (excluded)" : "");
          },
          .write = [&field] { return fmt::format("{:.12g}", field); }};
}

/// One of a few words. Every value that the field can have has one.
template <typename T>
[[nodiscard]] OptionBinding choice(T& field, std::vector<std::pair<std::string, T>> words) {
  std::vector<std::string> names;
  for (const auto& [word, value] : words) names.push_back(word);
  return {.read = [&field, words](const std::string& text) -> std::optional<std::string> {
            std::string known;
            for (const auto& [word, value] : words) {
              if (text == word) {
                field = value;
                return {};
              }
              known += (known.empty() ? "" : ", ") + word;
            }
            return "one of " + known;
          },
          .write =
              [&field, words] {
                for (const auto& [word, value] : words)
                  if (field == value) return word;
                return std::string("?");
              },
          .words = std::move(names)};
}

[[nodiscard]] OptionBinding text(std::string& field);
/// A positive size.
[[nodiscard]] OptionBinding bytes(std::optional<std::size_t>& field);
[[nodiscard]] OptionBinding bytes(std::size_t& field);
/// A time that is longer than none.
[[nodiscard]] OptionBinding duration(std::optional<std::chrono::seconds>& field);
/// "on" or "off" (true, false, yes, no, 1, 0 as well).
[[nodiscard]] OptionBinding toggle(bool& field);
/// A flag without value; `key = on` in a config file.
[[nodiscard]] OptionBinding switch_on(bool& field);
/// --help and -h: `asked` becomes true, and `concern` the heading that the words after the flag name, if there are
/// any; parse() refuses others with a list of the headings.
[[nodiscard]] OptionBinding help_of(bool& asked, std::string& concern);

}  // namespace ranvier::runtime
