#include "apps/program/options.hpp"

#include "runtime/base/names.hpp"

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/predicate.hpp>
#include <boost/algorithm/string/split.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ranvier::apps {
namespace {

namespace po = boost::program_options;

std::string_view without_dashes(std::string_view name) {
  name.remove_prefix(std::min(name.size(), name.find_first_not_of('-')));
  return name.substr(0, name.find('='));
}

/// Literal values in a placeholder: auto and none of auto|none|PATH.
std::vector<std::string> words_of_placeholder(const std::string& placeholder) {
  std::vector<std::string> words;
  boost::split(words, placeholder, boost::is_any_of("|"));
  if (words.size() == 1) return {};
  std::erase_if(words, [](const std::string& word) { return !boost::all(word, boost::is_from_range('a', 'z')); });
  return words;
}

/// Value of `name` in names such as "half=bf16 dtype": empty without a value. None: not one of the names.
std::optional<std::string> value_of_name(std::string_view names, std::string_view name) {
  std::istringstream words{std::string(names)};
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size());
    if (word.substr(0, equals) == name) return word.substr(std::min(equals + 1, word.size()));
  }
  return {};
}

/// Value of a config file without enclosing quotes.
std::string without_quotes(const std::string& value) {
  const bool begins = !value.empty() && (value.front() == '"' || value.front() == '\'');
  const bool quoted = begins && value.size() >= 2 && value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

const std::string* value_of(const std::vector<GivenFlag>& flags, std::string_view name) {
  const auto found = std::ranges::find(flags, name, &GivenFlag::name);
  return found == flags.end() ? nullptr : &found->value;
}

NoEffect unused_if(std::function<bool()> condition, std::string reason) {
  return [condition = std::move(condition), reason = std::move(reason)] {
    return condition() ? reason : std::string();
  };
}

void OptionTable::concern(std::string title) { concern_ = std::move(title); }

void OptionTable::add(Option option, OptionTraits traits) {
  if (option.default_text.empty()) option.default_text = option.binding.write();
  options_.push_back({std::move(option), std::move(traits), concern_, {}, {}});
}

void OptionTable::rebind(std::string_view name, OptionBinding binding) {
  const auto found = std::ranges::find(options_, name, [](const Declared& each) { return each.option.name; });
  expect(found != options_.end(), "no option is called {}", name);
  found->option.binding = std::move(binding);
}

OptionTable* OptionTable::owner(std::string_view name) {
  OptionTable* table = this;
  while (table != nullptr && table->find(name) == nullptr) table = table->more_;
  return table;
}

void OptionTable::parse(int argc, const char* const* argv) {
  for (OptionTable* table = this; table != nullptr; table = table->more_)
    for (auto& declared : table->options_) declared.origin.clear();
  std::vector<const char*> words(argv, argv + argc);
  const auto is_short = [](std::string_view word) { return word == "-o"; };
  if (find("output")) std::ranges::replace_if(words, is_short, "--output");
  read_flags(argc, words.data());
  for (OptionTable* table = this; table != nullptr; table = table->more_) {
    if (table->given("config")) table->read_file(table->at("config").text);
    table->read_values();
    if (table->more_ != nullptr && table->alone_()) return;
  }
}

void OptionTable::read(const std::vector<GivenFlag>& flags) {
  for (auto& declared : options_) declared.origin.clear();
  for (const GivenFlag& flag : flags) {
    expect(find(flag.name) != nullptr, "no option is called {}", flag.name);
    set(flag.name, flag.value, "--" + flag.name, true);
  }
  read_values();
}

void OptionTable::assign(const GivenFlag& flag) const {
  const auto wanted = at(flag.name).option.binding.read(flag.value);
  expect(!wanted, "--{} {} is invalid", flag.name, flag.value);
}

void OptionTable::read_values() {
  for (auto& declared : options_) {
    if (declared.origin.empty()) continue;
    const bool alone = declared.text == "on" || declared.text == "off";
    if (declared.option.binding.names_concern && !alone) declared.text = find_concern(facts(), declared.text);
    if (const auto wanted = declared.option.binding.read(declared.text))
      reject("{} is invalid: {}; use {}", declared.origin, declared.text.empty() ? "''" : declared.text, *wanted);
  }
}

void OptionTable::read_flags(int argc, const char* const* argv) {
  // Boost searches all registered options for every word, so only options that occur are registered.
  std::vector<std::string_view> named;
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word(argv[i]); word.starts_with("--")) named.push_back(without_dashes(word));
  std::ranges::sort(named);
  named.erase(std::unique(named.begin(), named.end()), named.end());
  po::options_description description;
  for (const std::string_view name : named) {
    const OptionTable* const table = owner(name);
    if (table == nullptr) continue;
    auto* value = po::value<std::string>();
    if (table->at(name).option.binding.is_switch) value->implicit_value("on");
    description.add_options()(std::string(name).c_str(), value);
  }
  namespace style = po::command_line_style;
  try {
    const auto parsed = po::command_line_parser(argc, argv)
                            .options(description)
                            .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
                            .allow_unregistered()
                            .run();
    Declared* asking = nullptr;  // option that consumes the following words without dashes
    for (const auto& found : parsed.options) {
      if (found.position_key >= 0 && found.original_tokens.at(0) == "-h" && find("help")) {
        set("help", "on", "-h", true);
        asking = at_concern();
        continue;
      }
      if (found.position_key >= 0 && asking != nullptr) {
        asking->text = asking->text == "on" ? found.value.at(0) : asking->text + ' ' + found.value.at(0);
        continue;
      }
      if (found.unregistered)
        reject("unknown flag {}: {}", found.original_tokens.at(0), advice(found.original_tokens.at(0)));
      if (found.position_key >= 0 && rest_ != nullptr) {
        rest_->insert(rest_->end(), found.value.begin(), found.value.end());
        continue;
      }
      if (found.position_key >= 0)
        reject("unexpected argument '{}': no flag stands before it; --help lists the flags",
               found.original_tokens.at(0));
      OptionTable& table = *owner(found.string_key);
      table.set(found.string_key, found.value.empty() ? "on" : found.value.at(0), "--" + found.string_key, true);
      asking = table.at(found.string_key).option.binding.names_concern ? table.at_concern() : nullptr;
    }
  } catch (const po::error& error) {
    reject("{}; --help lists the flags", error.what());
  }
}

void OptionTable::read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file || file.peek() == std::ifstream::traits_type::eof())
    reject("--config {}: the file cannot be read or is empty", path);
  const std::string lines{std::istreambuf_iterator<char>(file), {}};
  if (const auto zero = lines.find('\0'); zero != std::string::npos)
    reject("--config {}: zero byte at offset {}; use a text file", path, zero);
  std::istringstream text(lines);
  std::string line, section;
  for (int number = 1; std::getline(text, line); ++number) {
    line = boost::trim_copy(line.substr(0, line.find('#')));
    const std::size_t equals = line.find('=');
    const bool is_section = line.starts_with('[') && line.ends_with(']');
    if (is_section) section = line.substr(1, line.size() - 2) + '.';
    if (line.empty() || is_section) continue;
    if (equals == std::string::npos)
      reject("--config {}: line {} is not key = value: '{}'; start comments with #", path, number, line);
    const std::string key = section + boost::trim_copy(line.substr(0, equals));
    if (key == "config")
      reject("key 'config' in {}: config files cannot be nested; put all keys into one file", path);
    if (find(key) == nullptr) reject("unknown key '{}' in {}: {}", key, path, advice_for_key(key));
    set(key, without_quotes(boost::trim_copy(line.substr(equals + 1))), fmt::format("{} in {}", key, path), false);
  }
}

void OptionTable::set(std::string_view name, std::string text, std::string origin, bool wins) {
  for (auto& declared : options_) {
    if (declared.option.name != name) continue;
    if (declared.origin == origin) {
      if (!declared.option.binding.repeats) reject("{} is given twice; remove one occurrence", origin);
      text = declared.text + ',' + text;
    } else if (!wins && !declared.origin.empty()) {
      return;
    }
    declared.text = std::move(text);
    declared.origin = std::move(origin);
    return;
  }
}

std::string OptionTable::advice(std::string_view unknown) const {
  const bool is_key = !unknown.starts_with("-");
  std::vector<std::string> names;
  for (const OptionTable* table = this; table != nullptr; table = table->more_) {
    if (auto other = table->advice_on_other_name(without_dashes(unknown), is_key)) return *other;
    for (const auto& declared : table->options_) names.push_back(declared.option.name);
  }
  const auto nearest = runtime::nearest_name(without_dashes(unknown), names);
  if (!nearest && more_ != nullptr) return fmt::format("--help and {} --help all list the flags", program_);
  if (!nearest) return "--help lists the flags";
  return fmt::format("did you mean {}{}?", is_key ? "" : "--", *nearest);
}

std::optional<std::string> OptionTable::advice_on_other_name(std::string_view name, bool is_key) const {
  std::string wanted(name);
  std::ranges::replace(wanted, '_', '-');
  for (const auto& [names, remedy] : lacking_)
    if (value_of_name(names, wanted)) return std::string(remedy);
  for (const Declared& declared : options_)
    if (const auto value = value_of_name(declared.traits.also, wanted))
      return fmt::format("did you mean {}{}{}{}?", is_key ? "" : "--", declared.option.name,
                         value->empty() ? ""
                         : is_key       ? " = "
                                        : " ",
                         *value);
  return {};
}

std::string OptionTable::advice_for_key(std::string_view unknown) const {
  const std::string_view bare = without_dashes(unknown);
  if (bare != unknown && find(bare)) return fmt::format("keys have no leading dashes; use {} = …", bare);
  return advice(bare);
}

OptionTable::Declared* OptionTable::at_concern() {
  const auto found =
      std::ranges::find_if(options_, [](const Declared& one) { return one.option.binding.names_concern; });
  return found == options_.end() ? nullptr : &*found;
}

const OptionTable::Declared* OptionTable::find(std::string_view name) const {
  const auto found = std::ranges::find_if(options_, [&](const Declared& one) { return one.option.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

const OptionTable::Declared& OptionTable::at(std::string_view name) const {
  const Declared* const found = find(name);
  expect(found != nullptr, "no option is called {}", name);
  return *found;
}

bool OptionTable::given(std::string_view name) const {
  const Declared* const found = find(name);
  return found != nullptr && !found->origin.empty();
}

std::vector<std::string> OptionTable::given() const {
  std::vector<std::string> names;
  for (const auto& declared : options_)
    if (!declared.origin.empty()) names.push_back(declared.option.name);
  return names;
}

std::vector<GivenFlag> OptionTable::given_flags() const {
  std::vector<GivenFlag> flags;
  for (const auto& declared : options_)
    if (!declared.origin.empty() && declared.option.name != "config")
      flags.push_back({declared.option.name, declared.option.binding.write()});
  return flags;
}

std::vector<std::string> OptionTable::unused() const {
  std::vector<std::string> notes;
  for (const Declared& declared : options_) {
    if (declared.origin.empty() || !declared.traits.unused) continue;
    const std::string reason = declared.traits.unused(), value = declared.option.binding.write();
    if (!reason.empty())
      notes.push_back(
          fmt::format("--{}{}{} has no effect {}", declared.option.name, value.empty() ? "" : " ", value, reason));
  }
  return notes;
}

std::vector<OptionInfo> OptionTable::facts() const {
  std::vector<OptionInfo> all;
  for (const auto& [option, traits, concern, text, origin] : options_)
    all.push_back({concern, option.name, option.placeholder, option.help, option.default_text, option.binding.words,
                   option.details, traits.usual});
  const std::vector<std::string> concerns = concern_words(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].words.empty()) all[i].words = words_of_placeholder(all[i].placeholder);
    if (!options_[i].option.binding.names_concern) continue;
    all[i].words = concerns;
    all[i].words.emplace_back(all_concerns);
    all[i].default_text.clear();
  }
  return all;
}

std::vector<ResolvedOption> OptionTable::resolved() const {
  std::vector<ResolvedOption> all;
  for (const auto& [option, traits, concern, text, origin] : options_)
    all.push_back(
        {concern, option.name, option.binding.write(), option.per_rank, option.binding.is_switch, traits.effect});
  return all;
}

std::uint64_t hash_of(const std::vector<ResolvedOption>& options) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xffu) * 0x100000001b3u;  // separator: no text contains 0xff
  };
  for (const auto& option : options) {
    if (option.per_rank) continue;
    add(option.name);
    add(option.value);
  }
  return hash;
}

constexpr std::pair<std::string_view, unsigned> units[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20},
                                                           {"KiB", 10}, {"B", 0},    {"", 0}};

std::optional<std::size_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return {};
  std::string_view rest(end, static_cast<std::size_t>(last - end));
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
  for (const auto& [unit, shift] : units) {
    if (rest != unit) continue;
    const double bytes = std::ldexp(number, static_cast<int>(shift));
    if (bytes >= 0x1p63 || bytes != std::floor(bytes)) return {};
    return static_cast<std::size_t>(bytes);
  }
  return {};
}

std::string bytes_text(std::size_t bytes) {
  for (const auto& [unit, shift] : units)
    if (bytes != 0 && bytes % (std::size_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  return "0B";
}

constexpr std::pair<char, std::int64_t> time_units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  // Limit per number, so that a sum of four fits 64 bits.
  constexpr std::int64_t max_seconds = std::int64_t{1} << 40;
  if (text.empty()) return {};
  std::int64_t seconds = 0;
  for (const auto& [unit, unit_seconds] : time_units) {
    std::int64_t number = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (end == last || *end != unit) continue;
    if (error != std::errc{} || number < 0 || number > max_seconds / unit_seconds) return {};
    seconds += number * unit_seconds;
    text.remove_prefix(static_cast<std::size_t>(end + 1 - text.data()));
  }
  if (!text.empty()) return {};
  return std::chrono::seconds(seconds);
}

std::string duration_text(std::chrono::seconds duration) {
  std::string text;
  std::int64_t left = duration.count();
  for (const auto& [unit, unit_seconds] : time_units) {
    if (left >= unit_seconds) text += fmt::format("{}{}", left / unit_seconds, unit);
    left %= unit_seconds;
  }
  return text.empty() ? "0s" : text;
}

std::vector<std::string> items_of(std::string_view text) {
  std::vector<std::string> items;
  boost::split(items, text, boost::is_any_of(","));
  return items;
}

OptionBinding parsed(std::string valid, std::function<bool(const std::string&)> read,
                     std::function<std::string()> write, std::vector<std::string> words) {
  return {.read = [valid = std::move(valid), read = std::move(read)](const std::string& given)
              -> std::optional<std::string> { return read(given) ? std::nullopt : std::optional(valid); },
          .write = std::move(write),
          .words = std::move(words)};
}

OptionBinding text(std::string& field) {
  const auto read = [&field](const std::string& given) {
    field = given;
    return !given.empty();
  };
  return parsed("a non-empty value", read, [&field] { return field; });
}

constexpr const char* valid_size = "a size such as 512MiB, 1.5GiB or a number of bytes";

OptionBinding bytes(std::optional<std::size_t>& field) {
  const auto read = [&field](const std::string& given) {
    field = parse_bytes(given);
    return field && *field > 0;
  };
  return parsed(valid_size, read, [&field] { return field ? bytes_text(*field) : std::string(); });
}

OptionBinding duration(std::optional<std::chrono::seconds>& field) {
  const auto read = [&field](const std::string& given) {
    field = parse_duration(given);
    return field && field->count() > 0;
  };
  return parsed("a time such as 90s, 30m, 4h or 1h30m", read,
                [&field] { return field ? duration_text(*field) : std::string(); });
}

OptionBinding bytes(std::size_t& field) {
  const auto read = [&field](const std::string& given) {
    field = parse_bytes(given).value_or(0);
    return field > 0;
  };
  return parsed(valid_size, read, [&field] { return bytes_text(field); });
}

OptionBinding toggle(bool& field) {
  return parsed(
      "on or off",
      [&field](const std::string& given) {
        field = given == "on" || given == "true" || given == "yes" || given == "1";
        return field || given == "off" || given == "false" || given == "no" || given == "0";
      },
      [&field] { return std::string(field ? "on" : "off"); }, {"on", "off"});
}

OptionBinding switch_on(bool& field) {
  auto binding = toggle(field);
  binding.is_switch = true;
  return binding;
}

OptionBinding help_of(bool& asked, std::string& concern) {
  return {.read = [&asked, &concern](const std::string& given) -> std::optional<std::string> {
            asked = given != "off";
            concern = given == "on" || given == "off" ? "" : given;
            return {};
          },
          .write = [&asked] { return std::string(asked ? "on" : "off"); },
          .is_switch = true,
          .names_concern = true};
}

}  // namespace ranvier::apps
