// Options of a program, each declared once and bound to a field of a struct. The table reads the command line and a
// config file (`key = value` lines, `#` comments; flags have precedence) and writes help and values as text. Options
// are read in the order of declaration, so a preset can set later ones. All errors are ErrorCode::usage with flag,
// value and remedy. Bound fields outlive the table. One thread at a time.
//
//   OptionTable table;
//   table.add({.name = "steps", .placeholder = "N", .help = "Steps", .binding = whole(options.steps, 1)});
//   table.parse(argc, argv);
#pragma once

#include "apps/program/option_info.hpp"
#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

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

namespace ranvier::apps {

/// Throws ErrorCode::usage. `text` names flag, value and remedy.
template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorCode::usage, text, std::forward<Args>(args)...);
}

/// Conversions between a field and its text.
struct OptionBinding {
  /// Sets the field. If `text` is invalid, returns a description of valid values ("a whole number from 1 to 8").
  std::function<std::optional<std::string>(const std::string& text)> read;
  std::function<std::string()> write;
  bool is_switch = false;          ///< the flag without a value means "on"
  std::vector<std::string> words;  ///< named values, for shell completion
  bool names_concern = false;      ///< the value is a heading of the help text, in one or more words (help_of())
  bool repeats = false;            ///< repeated flags are one list: "--jitter 1 --jitter 2" is "--jitter 1,2"
};

/// Effect of another value on a run that resumes from a checkpoint.
enum class OptionEffect {
  shape,     ///< sizes of states change; a checkpoint with another value cannot be loaded
  decides,   ///< results change
  rounding,  ///< results stay the same within rounding
  bits,      ///< results stay bit-identical
  judges,    ///< results stay bit-identical until a bad step
  tells,     ///< results stay bit-identical; evaluations or text samples change
  run,       ///< property of a single run; not compared
};

/// Treatment of a given value by ranvier-plan and --plan auto.
enum class PlanRole {
  passed,    ///< candidates have the given value
  searched,  ///< the same; without a given value, the search chooses it
  sized,     ///< searched in the limits of a given value; always stated, since the default depends on other options
  required,  ///< passed and always stated: plans with different values are not comparable
  machine,   ///< replaced by the profile or the job's ranks
  gpu,       ///< passed on profiles of GPUs, otherwise ignored
  output,    ///< a file that planning does not write
  request,   ///< ignored: no property of the planned run
};

/// Reason why an option has no effect, as in "with one stage"; empty: it has an effect. Reads the resolved fields.
using NoEffect = std::function<std::string()>;
[[nodiscard]] NoEffect unused_if(std::function<bool()> condition, std::string reason);

/// Facts about an option that its text and binding do not show.
struct OptionTraits {
  std::string_view also = {};  ///< names in other programs, separated by blanks; NAME=VALUE also gives the value
  bool usual = false;          ///< most runs use it: part of the help text without a heading
  bool for_text = false;       ///< an error with models that read images
  PlanRole plan = PlanRole::passed;
  std::string_view fixes = {};  ///< name of a searched option that the search leaves alone if this one is given
  NoEffect unused = {};         ///< null: the option always has an effect
  OptionEffect effect = OptionEffect::run;
};

struct Option {
  std::string name;         ///< without dashes
  std::string placeholder;  ///< placeholder of the value in the help text; empty for a switch
  std::string help;
  OptionBinding binding;
  std::string default_text;  ///< default shown in the help text; empty: the field's value at add()
  bool per_rank = false;     ///< may differ between ranks: excluded from the hash
  std::string details = {};  ///< more, for help on a heading and for manual pages
};

/// An option and its value, as on the command line.
struct GivenFlag {
  std::string name;  ///< without dashes
  std::string value;

  friend bool operator==(const GivenFlag&, const GivenFlag&) = default;
};
/// Value of the flag in the list; null if it is not given.
[[nodiscard]] const std::string* value_of(const std::vector<GivenFlag>& flags, std::string_view name);

/// Value of one option after parsing.
struct ResolvedOption {
  std::string concern;
  std::string name;
  std::string value;
  bool per_rank = false;
  bool is_switch = false;
  OptionEffect effect = OptionEffect::run;
};

class OptionTable {
 public:
  /// Sets the heading of the options declared from here on.
  void concern(std::string title);
  void add(Option option, OptionTraits traits = {});
  /// Appends arguments without a flag to `field`, in order. Without this call they are errors.
  void rest(std::vector<std::string>& field) { rest_ = &field; }
  /// Accepts the flags of another table, of `program`, if this one lacks them. parse() then also reads that table, with
  /// its config file, unless `alone` is true after this one was read. `other` outlives this table.
  void also_reads(OptionTable& other, std::string program, std::function<bool()> alone) {
    more_ = &other;
    program_ = std::move(program);
    alone_ = std::move(alone);
  }
  /// Replaces the binding of an option, so that other values are valid.
  void rebind(std::string_view name, OptionBinding binding);

  /// Sets the remedy for names of other programs, separated by blanks, for which there is no option.
  void lacks(std::string_view names, std::string_view remedy) { lacking_.emplace_back(names, remedy); }
  /// "did you mean --precision bf16?" for "bf16", or "did you mean precision = bf16?" if it is a key of a config file.
  /// The name is without leading dashes; underscores count as dashes. None: no other program's name.
  [[nodiscard]] std::optional<std::string> advice_on_other_name(std::string_view name, bool is_key) const;

  /// Reads the flags, then the config file if the option "config" was given. -h is short for --help, -o for
  /// --output.
  void parse(int argc, const char* const* argv);

  /// Reads these values instead of a command line.
  void read(const std::vector<GivenFlag>& flags);
  /// Sets the field of an option to a valid value; the option does not count as given.
  void assign(const GivenFlag& flag) const;

  /// Whether the last parse() or read() found the option, as a flag or as a key.
  [[nodiscard]] bool given(std::string_view name) const;
  /// Options that it found, in the order of declaration.
  [[nodiscard]] std::vector<std::string> given() const;
  /// The same with their values, except the option "config".
  [[nodiscard]] std::vector<GivenFlag> given_flags() const;

  /// A sentence per given option without effect: "--prefetch 2 has no effect with one row". Call after all fields are
  /// resolved.
  [[nodiscard]] std::vector<std::string> unused() const;
  /// Throws ErrorCode::internal for an unknown name.
  [[nodiscard]] const OptionTraits& traits(std::string_view name) const { return at(name).traits; }

  [[nodiscard]] std::vector<OptionInfo> facts() const;
  [[nodiscard]] std::vector<ResolvedOption> resolved() const;

 private:
  struct Declared {
    Option option;
    OptionTraits traits;
    std::string concern;
    std::string text;    // value as given
    std::string origin;  // "--steps" or "steps in run.conf"; empty: not given
  };

  void read_values();
  /// Null if there is no such option.
  [[nodiscard]] const Declared* find(std::string_view name) const;
  /// This table or the other one that has the option; null if none has it.
  [[nodiscard]] OptionTable* owner(std::string_view name);
  void read_flags(int argc, const char* const* argv);
  void read_file(const std::string& path);
  void set(std::string_view name, std::string text, std::string origin, bool wins);
  [[nodiscard]] std::string advice(std::string_view unknown) const;
  [[nodiscard]] std::string advice_for_key(std::string_view unknown) const;
  [[nodiscard]] const Declared& at(std::string_view name) const;
  [[nodiscard]] Declared* at_concern();

  std::vector<Declared> options_;
  std::string concern_;
  std::vector<std::string>* rest_ = nullptr;
  OptionTable* more_ = nullptr;                                         // also_reads()
  std::string program_;                                                 // the same
  std::function<bool()> alone_;                                         // the same
  std::vector<std::pair<std::string_view, std::string_view>> lacking_;  // names, remedy
};

/// FNV-1a hash of names and values, without options that may differ between ranks.
[[nodiscard]] std::uint64_t hash_of(const std::vector<ResolvedOption>& options);

/// Bytes of "512MiB", "1.5GiB", "4096"; empty if `text` is not a size.
[[nodiscard]] std::optional<std::size_t> parse_bytes(std::string_view text);
/// Inverse of parse_bytes(), in the largest unit that divides.
[[nodiscard]] std::string bytes_text(std::size_t bytes);

/// Seconds of "90s", "30m", "1h30m", "2d": whole numbers with units from large to small; empty if `text` is not a
/// duration.
[[nodiscard]] std::optional<std::chrono::seconds> parse_duration(std::string_view text);
/// Inverse of parse_duration(); "0s" for zero.
[[nodiscard]] std::string duration_text(std::chrono::seconds duration);

/// `read` sets the field and returns whether the text is valid; `valid` describes valid texts.
[[nodiscard]] OptionBinding parsed(std::string valid, std::function<bool(const std::string&)> read,
                                   std::function<std::string()> write, std::vector<std::string> words = {});

/// Integer from `low` to `high`.
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
            // The type's limit is mentioned only if the value exceeds it.
            if (high == std::numeric_limits<T>::max() && error != std::errc::result_out_of_range)
              return fmt::format("a whole number, at least {}", low);
            return fmt::format("a whole number from {} to {}", low, high);
          },
          .write = [&field] { return fmt::format("{}", field); }};
}

/// The same for a field that may be none, which is written as empty text.
template <std::integral T>
[[nodiscard]] OptionBinding whole(std::optional<T>& field, std::type_identity_t<T> low,
                                  std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
  return {.read = [&field, low, high](const std::string& text) -> std::optional<std::string> {
            T value{};
            auto problem = whole(value, low, high).read(text);
            if (!problem) field = value;
            return problem;
          },
          .write = [&field] { return field ? fmt::format("{}", *field) : std::string(); }};
}

/// Integer from `low` to `high`; none for other text.
template <std::integral T>
[[nodiscard]] std::optional<T> parse_whole(const std::string& text, T low,
                                           std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
  std::optional<T> value;
  static_cast<void>(whole(value, low, high).read(text));
  return value;
}

/// Number from `low` to `high`; `high` itself may be excluded.
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

/// One of several words. Every value that the field can have needs a word.
template <typename T>
[[nodiscard]] OptionBinding choice(T& field, std::vector<std::pair<std::string, T>> words) {
  std::vector<std::string> names;
  for (const auto& [word, value] : words) names.push_back(word);
  return {.read = [&field, words, names](const std::string& text) -> std::optional<std::string> {
            for (const auto& [word, value] : words) {
              if (text != word) continue;
              field = value;
              return {};
            }
            return fmt::format("one of {}", fmt::join(names, ", "));
          },
          .write =
              [&field, words] {
                for (const auto& [word, value] : words)
                  if (field == value) return word;
                return std::string("?");
              },
          .words = std::move(names)};
}

/// `word` for the value `special`, or text that `other` reads. `valid` describes both.
template <typename T>
[[nodiscard]] OptionBinding or_word(T& field, std::string word, std::type_identity_t<T> special,
                                    OptionBinding other, std::string valid) {
  return parsed(
      std::move(valid),
      [=, &field, read = other.read](const std::string& text) {
        if (text != word) return !read(text);
        field = special;
        return true;
      },
      [=, &field, write = other.write] { return field == special ? word : write(); }, {word});
}

/// `binding` without the values of `field` that `accepts` refuses; `valid` describes the others.
template <typename T, typename Accepts>
[[nodiscard]] OptionBinding only_if(OptionBinding binding, const T& field, std::string valid, Accepts accepts) {
  binding.read = [&field, read = std::move(binding.read), valid = std::move(valid),
                  accepts](const std::string& text) -> std::optional<std::string> {
    return read(text) || !accepts(field) ? std::optional(valid) : std::nullopt;
  };
  return binding;
}

/// Items of "a,b,c". Empty text is one empty item.
[[nodiscard]] std::vector<std::string> items_of(std::string_view text);

/// Items separated by commas. `read` returns none for an invalid item; `valid` describes valid lists.
template <typename T>
[[nodiscard]] OptionBinding list(
    std::vector<T>& field, std::string valid, std::function<std::optional<T>(const std::string&)> read,
    std::function<std::string(const T&)> write = [](const T& item) { return fmt::format("{}", item); },
    std::vector<std::string> words = {}) {
  return parsed(
      std::move(valid),
      [&field, read = std::move(read)](const std::string& text) {
        std::vector<T> items;
        for (const std::string& item : items_of(text)) {
          std::optional<T> value = read(item);
          if (!value) return false;
          items.push_back(std::move(*value));
        }
        field = std::move(items);
        return true;
      },
      [&field, write = std::move(write)] {
        std::string text;
        for (const T& item : field) text += (text.empty() ? "" : ",") + write(item);
        return text;
      },
      std::move(words));
}

[[nodiscard]] OptionBinding text(std::string& field);
/// Positive size in bytes.
[[nodiscard]] OptionBinding bytes(std::optional<std::size_t>& field);
[[nodiscard]] OptionBinding bytes(std::size_t& field);
/// Positive duration.
[[nodiscard]] OptionBinding duration(std::optional<std::chrono::seconds>& field);
/// "on" or "off" (also true, false, yes, no, 1, 0).
[[nodiscard]] OptionBinding toggle(bool& field);
/// Flag without a value; `key = on` in a config file.
[[nodiscard]] OptionBinding switch_on(bool& field);
/// --help and -h: sets `asked`, and sets `concern` to the heading named by the words after the flag, if any. parse()
/// rejects unknown headings with a list.
[[nodiscard]] OptionBinding help_of(bool& asked, std::string& concern);

}  // namespace ranvier::apps
