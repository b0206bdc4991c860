#include "models/text/tokenizer_json.hpp"

#include "models/text/bpe_vocabulary.hpp"
#include "models/text/file_text.hpp"
#include "runtime/error.hpp"
#include "runtime/json_text.hpp"
#include "runtime/xxh3.hpp"

#include <boost/json/value.hpp>

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::int64_t most_tokens = 1 << 22;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

/// A value of the file with the key that leads to it, which messages name.
class Node {
 public:
  Node(const std::string& file, std::string key, const json::value* value)
      : file_(&file), key_(std::move(key)), value_(value) {}

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::data, "{}: '{}' {}", *file_, key_, what);
  }
  /// Of a part that this program has not.
  [[noreturn]] void unknown_type(std::string_view remedy) const {
    refuse(fmt::format("is of type '{}', which is not read: {}", type(), remedy));
  }
  [[nodiscard]] bool there() const { return value_ != nullptr && !value_->is_null(); }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] std::string where() const { return fmt::format("{}: '{}'", *file_, key_); }

  [[nodiscard]] Node operator[](std::string_view name) const {
    const json::object* object = value_ == nullptr ? nullptr : value_->if_object();
    return {*file_, key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name),
            object == nullptr ? nullptr : object->if_contains(json::string_view(name.data(), name.size()))};
  }
  [[nodiscard]] const json::object& object() const {
    if (!there() || !value_->is_object()) refuse("is no JSON object");
    return value_->get_object();
  }
  [[nodiscard]] std::vector<Node> list() const {
    if (!there() || !value_->is_array()) refuse("is no JSON list");
    std::vector<Node> nodes;
    nodes.reserve(value_->get_array().size());
    for (const json::value& one : value_->get_array())
      nodes.emplace_back(*file_, fmt::format("{}[{}]", key_, nodes.size()), &one);
    return nodes;
  }
  [[nodiscard]] const json::value* value() const { return value_; }
  [[nodiscard]] std::string text() const {
    if (!there() || !value_->is_string()) refuse("is no text");
    return std::string(view(value_->get_string()));
  }
  [[nodiscard]] std::string text_or(std::string otherwise) const { return there() ? text() : otherwise; }
  [[nodiscard]] bool flag(bool otherwise) const {
    if (!there()) return otherwise;
    if (!value_->is_bool()) refuse("is neither true nor false");
    return value_->get_bool();
  }
  [[nodiscard]] std::int64_t whole(std::int64_t least, std::int64_t most) const {
    if (!there() || !value_->is_int64() || value_->get_int64() < least || value_->get_int64() > most)
      refuse(fmt::format("is no whole number from {} to {}", least, most));
    return value_->get_int64();
  }
  [[nodiscard]] std::string type() const { return (*this)["type"].text(); }

 private:
  const std::string* file_;
  std::string key_;
  const json::value* value_;
};

std::string not_empty(const Node& node) {
  std::string text = node.text();
  if (text.empty()) node.refuse("is empty");
  return text;
}

std::string one_character(const Node& node) {
  std::string text = not_empty(node);
  if (character_bytes(text, 0) != text.size()) node.refuse("is not one character");
  return text;
}

/// Of {"String": "…"} and {"Regex": "…"}.
struct Pattern {
  std::string text;
  bool is_expression = false;
};
Pattern pattern_of(const Node& node) {
  if (const Node text = node["String"]; text.there()) return {not_empty(text), false};
  return {not_empty(node["Regex"]), true};
}

void add_normalizer(const Node& node, Normalizers& to) {
  if (!node.there()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& one : node["normalizers"].list()) add_normalizer(one, to);
  } else if (type == "NFC") {
    to.push_back(normal_form(NormalForm::composed));
  } else if (type == "NFD") {
    to.push_back(normal_form(NormalForm::decomposed));
  } else if (type == "NFKC") {
    to.push_back(normal_form(NormalForm::compatibly_composed));
  } else if (type == "NFKD") {
    to.push_back(normal_form(NormalForm::compatibly_decomposed));
  } else if (type == "Lowercase") {
    to.push_back(lowercase());
  } else if (type == "StripAccents") {
    to.push_back(strip_accents());
  } else if (type == "Strip") {
    to.push_back(strip(node["strip_left"].flag(true), node["strip_right"].flag(true)));
  } else if (type == "Prepend") {
    to.push_back(prepend(not_empty(node["prepend"])));
  } else if (type == "Replace") {
    const Pattern from = pattern_of(node["pattern"]);
    std::string content = node["content"].text();
    if (from.is_expression) {
      to.push_back(replace_matches(UnicodePattern(from.text, node.where()), std::move(content)));
    } else {
      to.push_back(replace_text(from.text, std::move(content)));
    }
  } else if (type == "BertNormalizer") {
    BertNormalization what{.clean_text = node["clean_text"].flag(true),
                           .handle_chinese_chars = node["handle_chinese_chars"].flag(true)};
    what.lowercase = node["lowercase"].flag(true);
    what.strip_accents = node["strip_accents"].flag(what.lowercase);
    to.push_back(bert_normalizer(what));
  } else {
    node.unknown_type(
        "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip and StripAccents are; "
        "make tokens with the program that this tokenizer is from, and give those");
  }
}

SplitBehavior behavior_of(const Node& node, const char* otherwise) {
  const std::string name = node.text_or(otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.refuse(fmt::format("is '{}', which no behavior is called", name));
}

Metaspace metaspace_of(const Node& node) {
  Metaspace what{.replacement = one_character(node["replacement"])};
  const std::string scheme =
      node["prepend_scheme"].text_or(node["add_prefix_space"].flag(true) ? "always" : "never");
  if (scheme != "always" && scheme != "never" && scheme != "first")
    node["prepend_scheme"].refuse(fmt::format("is '{}': always, never and first are read", scheme));
  what.prepend = scheme == "always"  ? Metaspace::Prepend::always
                 : scheme == "first" ? Metaspace::Prepend::first
                                     : Metaspace::Prepend::never;
  what.splits = node["split"].flag(true);
  return what;
}

struct PreTokenizing {
  PreTokenizers steps;
  bool of_bytes = false;  ///< a ByteLevel was met: nothing may follow
};

void add_pre_tokenizer(const Node& node, PreTokenizing& to) {
  if (!node.there()) return;
  const std::string type = node.type();
  if (to.of_bytes) node.refuse(fmt::format("is a {} behind a ByteLevel, which is not read", type));
  if (type == "Sequence") {
    for (const Node& one : node["pretokenizers"].list()) add_pre_tokenizer(one, to);
  } else if (type == "ByteLevel") {
    if (node["add_prefix_space"].flag(true)) to.steps.push_back(prefix_space());
    if (node["use_regex"].flag(true))
      to.steps.push_back(split_by(gpt2_expression(), node.where(), SplitBehavior::isolated));
    to.of_bytes = true;
  } else if (type == "Split") {
    const Pattern pattern = pattern_of(node["pattern"]);
    to.steps.push_back(split_by(pattern.is_expression ? pattern.text : UnicodePattern::literal(pattern.text),
                                node.where(), behavior_of(node["behavior"], "Isolated"),
                                node["invert"].flag(false)));
  } else if (type == "Digits") {
    const bool each = node["individual_digits"].flag(false);
    to.steps.push_back(
        split_by("\\p{N}", node.where(), each ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (type == "Metaspace") {
    to.steps.push_back(split_by_metaspace(metaspace_of(node)));
  } else if (type == "BertPreTokenizer") {
    to.steps.push_back(split_as_bert());
  } else if (type == "Whitespace") {
    to.steps.push_back(
        split_by(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)", node.where(), SplitBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    to.steps.push_back(split_by_white_space());
  } else if (type == "Punctuation") {
    to.steps.push_back(split_by_punctuation(behavior_of(node["behavior"], "Isolated")));
  } else if (type == "CharDelimiterSplit") {
    to.steps.push_back(
        split_by(UnicodePattern::literal(one_character(node["delimiter"])), node.where(), SplitBehavior::removed));
  } else {
    node.unknown_type(
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, Split, "
        "Whitespace "
        "and WhitespaceSplit are; make tokens with the program that this tokenizer is from, and give those");
  }
}

struct Decoding {
  std::vector<TokenSpelling::Step> steps;
  bool fused = false;
  char stripped = ' ';
  int strips = 0;
};

std::string cleaned_up(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> changes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) replace_all(text, from, to);
  return text;
}

void add_decoder(const Node& node, Decoding& to) {
  const std::string type = node.type();
  const auto per_token = [&] {
    if (to.fused) node.refuse(fmt::format("is a {} behind a Fuse, which is not read", type));
  };
  if (type == "Sequence") {
    for (const Node& one : node["decoders"].list()) add_decoder(one, to);
  } else if (type == "ByteLevel") {
    per_token();
    to.steps.push_back([](std::string& token, bool) {
      std::string bytes;
      if (bytes_of_spelling(token, bytes)) token = std::move(bytes);
    });
    to.fused = true;
  } else if (type == "ByteFallback") {
    per_token();
    to.steps.push_back([](std::string& token, bool) {
      if (const int byte = spelled_byte(token); byte >= 0) token = std::string(1, static_cast<char>(byte));
    });
  } else if (type == "Fuse") {
    to.fused = true;
  } else if (type == "Replace") {
    const Pattern from = pattern_of(node["pattern"]);
    if (from.is_expression || (to.fused && from.text.size() != character_bytes(from.text, 0)))
      node.refuse("replaces what is not one text of a token, which is not read");
    to.steps.push_back([from = from.text, content = node["content"].text()](std::string& token, bool) {
      replace_all(token, from, content);
    });
  } else if (type == "Strip") {
    const std::string content = one_character(node["content"]);
    const auto start = static_cast<int>(node["start"].whole(0, 1000));
    const auto stop = static_cast<int>(node["stop"].whole(0, 1000));
    if (to.fused) {
      if (stop > 0 || content.size() > 1 || to.strips > 0)
        node.refuse("strips the end of text, or more than one ASCII character, which is not read");
      to.stripped = content.front();
      to.strips = start;
      return;
    }
    to.steps.push_back([content, start, stop](std::string& token, bool) {
      for (int i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (int i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
    });
  } else if (type == "Metaspace") {
    per_token();
    const Metaspace what = metaspace_of(node);
    to.steps.push_back([what](std::string& token, bool is_first) {
      const bool drops = is_first && what.prepend != Metaspace::Prepend::never;
      replace_all(token, what.replacement, drops ? "" : " ");
    });
  } else if (type == "WordPiece") {
    per_token();
    to.steps.push_back([prefix = node["prefix"].text_or("##"), cleanup = node["cleanup"].flag(true)](
                           std::string& token, bool is_first) {
      if (!is_first) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      if (cleanup) token = cleaned_up(std::move(token));
    });
  } else {
    node.unknown_type(
        "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip and WordPiece are; the tokens cannot "
        "be "
        "made text again");
  }
}

/// What a token's number may be: some may be missing.
std::int64_t largest_of(std::size_t tokens) {
  return std::min<std::int64_t>(4 * static_cast<std::int64_t>(tokens) + 1024, most_tokens) - 1;
}

/// The tokens by name and by number.
class Tokens {
 public:
  explicit Tokens(const Node& vocabulary) {
    const json::object& object = vocabulary.object();
    ids_.reserve(object.size());
    std::set<std::int32_t> taken;
    for (const auto& [name, id] : object) {
      const std::string_view spelling(name.data(), name.size());
      const std::int64_t most = largest_of(object.size());
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > most)
        vocabulary.refuse(fmt::format("gives token '{}' no whole number from 0 to {}", spelling, most));
      const auto number = static_cast<std::int32_t>(id.get_int64());
      if (!taken.insert(number).second)
        vocabulary.refuse(fmt::format("has two tokens with number {}; the file is damaged", number));
      ids_.emplace(std::string(spelling), number);
      note(number, spelling);
    }
  }
  [[nodiscard]] std::optional<std::int32_t> find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  /// A token that is not in the vocabulary, or is and keeps its number; `id` is the value that `of` has.
  std::int32_t add(const std::string& content, std::int32_t id, const Node& of) {
    const auto [found, is_new] = ids_.emplace(content, id);
    if (!is_new) return found->second;
    if (const auto i = static_cast<std::size_t>(id); i < spellings_.size() && !spellings_[i].empty())
      of.refuse(fmt::format("is {}, which is the number of '{}' already; the file is damaged", id, spellings_[i]));
    note(id, content);
    return id;
  }
  [[nodiscard]] const std::unordered_map<std::string, std::int32_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<std::string>& spellings() const { return spellings_; }

 private:
  void note(std::int32_t id, std::string_view spelling) {
    const auto i = static_cast<std::size_t>(id);
    if (spellings_.size() <= i) spellings_.resize(i + 1);
    spellings_[i] = spelling;
  }

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> spellings_;  // by number; some may be of no token
};

std::pair<std::string, std::string> merge_of(const Node& node) {
  const json::value& one = *node.value();
  std::string_view left, right;
  if (one.is_string()) {  // "a b", or ["a", "b"] in newer files
    const std::string_view text = view(one.get_string());
    const std::size_t blank = std::min(text.find(' '), text.size());
    left = text.substr(0, blank);
    right = text.substr(std::min(blank + 1, text.size()));
  } else if (one.is_array() && one.get_array().size() == 2 && one.get_array()[0].is_string() &&
             one.get_array()[1].is_string()) {
    left = view(one.get_array()[0].get_string());
    right = view(one.get_array()[1].get_string());
  }
  if (left.empty() || right.empty()) node.refuse("is not two tokens");
  return {std::string(left), std::string(right)};
}

bool is_set(const Node& node) {
  return node.there() && !(node.value()->is_string() && node.value()->get_string().empty()) &&
         !(node.value()->is_number() && node.value()->to_number<double>() == 0);
}

BpeModel read_bpe(const Node& model, const Tokens& tokens, bool of_bytes) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (is_set(model[key]))
      model[key].refuse("is set, which is not read: make tokens with the program that this tokenizer is from");
  BpeModel bpe{.of_bytes = of_bytes,
               .ignore_merges = model["ignore_merges"].flag(false),
               .byte_fallback = model["byte_fallback"].flag(false) && !of_bytes,
               .fuse_unknown = model["fuse_unk"].flag(false)};
  if (const Node unknown = model["unk_token"]; unknown.there()) {
    const auto id = tokens.find(unknown.text());
    if (!id) unknown.refuse(fmt::format("is '{}', which is no token", unknown.text()));
    bpe.unknown = *id;
  }
  bpe.bytes.fill(-1);
  std::string bytes;
  for (const auto& [name, id] : tokens.ids()) {
    if (const int byte = spelled_byte(name); byte >= 0 && name == fmt::format("<0x{:02X}>", byte))
      bpe.bytes[static_cast<std::size_t>(byte)] = id;  // <0x0a> is text
    if (!of_bytes)
      bpe.pieces.add(name, id);
    else if (bytes_of_spelling(name, bytes) && !bytes.empty())
      bpe.pieces.add(bytes, id);
  }
  const std::vector<Node> merges = model["merges"].list();
  bpe.merges = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::pair<std::string, std::string> both = merge_of(merges[rank]);
    const std::string &left = both.first, &right = both.second;
    const auto find = [&](const std::string& name) {
      const auto id = tokens.find(name);
      if (!id) merges[rank].refuse(fmt::format("joins '{}' and '{}', and '{}' is no token", left, right, name));
      return *id;
    };
    bpe.merges.add(find(left), find(right), {static_cast<std::uint32_t>(rank), find(left + right)});
  }
  return bpe;
}

WordPieceModel read_word_piece(const Node& model, const Tokens& tokens) {
  WordPieceModel pieces{.continuing_prefix = model["continuing_subword_prefix"].text_or("##")};
  const Node unknown = model["unk_token"];
  const auto id = tokens.find(unknown.text_or("[UNK]"));
  if (!id) unknown.refuse(fmt::format("is '{}', which is no token", unknown.text_or("[UNK]")));
  pieces.unknown = *id;
  if (const Node longest = model["max_input_chars_per_word"]; longest.there())
    pieces.longest_word = static_cast<std::size_t>(longest.whole(0, 1 << 30));
  for (const auto& [name, number] : tokens.ids()) pieces.pieces.add(name, number);
  return pieces;
}

struct Added {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::int32_t> special;
};

Added read_added(const Node& list, Tokens& tokens, const Normalizers& normalizers) {
  Added added;
  if (!list.there()) return added;
  for (const Node& one : list.list()) {
    AddedToken token{.content = one["content"].text(),
                     .special = one["special"].flag(false),
                     .single_word = one["single_word"].flag(false),
                     .strips_left = one["lstrip"].flag(false),
                     .strips_right = one["rstrip"].flag(false)};
    const Node id = one["id"];
    token.token =
        tokens.add(token.content, static_cast<std::int32_t>(id.whole(0, largest_of(tokens.ids().size()))), id);
    if (token.special) added.special.push_back(token.token);
    const bool normalizes = one["normalized"].flag(!token.special);
    if (normalizes && first_stray_byte(token.content, 0) == token.content.size())
      for (const auto& step : normalizers) step->apply(token.content, {});
    if (token.content.empty()) continue;
    (normalizes ? added.normalized : added.raw).push_back(std::move(token));
  }
  return added;
}

TokenSpelling spelling_of(const Node& decoder, const Tokens& tokens, const std::vector<std::int32_t>& special) {
  Decoding decoding;
  if (decoder.there()) {
    add_decoder(decoder, decoding);
  } else {
    decoding.steps.push_back([](std::string& token, bool is_first) {
      if (!is_first) token.insert(0, " ");
    });
  }
  std::vector<bool> silent(tokens.spellings().size());
  for (std::size_t i = 0; i < silent.size(); ++i) silent[i] = tokens.spellings()[i].empty();
  for (const std::int32_t token : special) silent[static_cast<std::size_t>(token)] = true;
  return {tokens.spellings(), silent, decoding.steps, decoding.stripped, decoding.strips};
}

/// The kind of a model; older files do not say.
std::string model_type(const Node& model) {
  static_cast<void>(model.object());
  if (model["type"].there()) return model.type();
  return model["merges"].there() ? "BPE" : model["vocab"].there() && model["unk_token"].there() ? "WordPiece" : "";
}

/// Of what cuts no words by itself.
bool leaves_texts_whole(const Node& pre_tokenizer) {
  if (!pre_tokenizer.there()) return true;
  const std::string type = pre_tokenizer.type();
  return (type == "Metaspace" && !pre_tokenizer["split"].flag(true)) ||
         (type == "ByteLevel" && !pre_tokenizer["use_regex"].flag(true));
}

std::vector<std::string> words_of(const PreTokenizers& steps, const std::string& text, Place place) {
  CutText words{text, {}};
  if (!text.empty()) words.ranges.push_back({0, text.size()});
  for (const auto& step : steps) step->cut(words, place);
  std::vector<std::string> found;
  for (const auto& [begin, end] : words.ranges) found.push_back(words.text.substr(begin, end - begin));
  return found;
}

/// Whether they begin a word at every space behind another character, whatever lies before and behind, and what spaces
/// are normalised to is one for them.
bool cuts(const PreTokenizers& steps, const Normalizers& normalizers) {
  const auto first_that_counts = std::find_if(
      steps.begin(), steps.end(), [](const auto& step) { return step->cuts_before_spaces() || !step->is_local(); });
  if (first_that_counts == steps.end() || !(*first_that_counts)->cuts_before_spaces()) return false;
  std::string space = " ";
  for (const auto& step : normalizers) step->apply(space, {false, false});
  for (const std::string beside : {"x", "1", "!"}) {
    std::vector<std::string> of_parts = words_of(steps, beside, {});
    for (std::string& word : words_of(steps, space + beside, {false, false})) of_parts.push_back(std::move(word));
    if (words_of(steps, beside + space + beside, {}) != of_parts) return false;
  }
  return true;
}

}  // namespace

std::map<std::string, std::string> special_token_names(const fs::path& folder) {
  std::map<std::string, std::string> names;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / file, ignored)) continue;
    const FileText text(folder / file);
    const json::value parsed = runtime::parse_json(text.text(), text.name());
    const Node root(text.name(), "", &parsed);
    static_cast<void>(root.object());
    for (const char* key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      const Node node = root[key];
      if (!node.there() || names.contains(key)) continue;
      names[key] = node.value()->is_object() ? node["content"].text() : node.text();
    }
  }
  return names;
}

bool is_of_gpt2s_kind(const fs::path& path) {
  const FileText file(path);
  const json::value parsed = runtime::parse_json(file.text(), file.name());
  const Node root(file.name(), "", &parsed);
  static_cast<void>(root.object());
  const Node model = root["model"], words = root["pre_tokenizer"];
  if (model_type(model) != "BPE" || !words.there() || root["normalizer"].there() || words.type() != "ByteLevel" ||
      words["add_prefix_space"].flag(true) || !words["use_regex"].flag(true))
    return false;
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "unk_token"})
    if (is_set(model[key])) return false;
  if (model["ignore_merges"].flag(false) || model["byte_fallback"].flag(false)) return false;
  bool ends = model["vocab"][end_of_text_spelling].there();
  if (const Node added = root["added_tokens"]; added.there()) {
    for (const Node& one : added.list()) {
      if (one["content"].text() != end_of_text_spelling || !one["special"].flag(false)) return false;
      ends = true;
    }
  }
  return ends;
}

std::shared_ptr<const TokenizerPipeline> read_tokenizer_json(const fs::path& path) {
  const FileText file(path);
  const json::value parsed = runtime::parse_json(file.text(), file.name());
  const Node root(file.name(), "", &parsed);
  static_cast<void>(root.object());
  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file.name();
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(file.text())));
  add_normalizer(root["normalizer"], pipeline->normalizers);
  PreTokenizing words;
  add_pre_tokenizer(root["pre_tokenizer"], words);
  pipeline->cuts_before_spaces = cuts(words.steps, pipeline->normalizers);

  const Node model = root["model"];
  const std::string type = model_type(model);
  if (type != "BPE" && type != "WordPiece")
    model.refuse(
        fmt::format("is of type '{}', which is not read: BPE and WordPiece are; make tokens with the program "
                    "that this tokenizer is from, and give those",
                    type));
  Tokens tokens(model["vocab"]);
  if (tokens.ids().empty()) model["vocab"].refuse("has no tokens");
  if (type == "BPE") {
    BpeModel bpe = read_bpe(model, tokens, words.of_bytes);
    // Words that are whole texts are cut where no merge joins anything, so that most are met again.
    const std::string mark = words.of_bytes ? " " : "\u2581";
    if (!pipeline->cuts_before_spaces && !bpe.ignore_merges && joins_nothing_before(bpe.pieces, mark)) {
      std::string space = " ";
      for (const auto& step : pipeline->normalizers) step->apply(space, {false, false});
      for (const auto& step : words.steps) {
        CutText one{space, {{0, space.size()}}};
        step->cut(one, {false, false});
        space = one.text;
      }
      pipeline->cuts_before_spaces = space == mark && leaves_texts_whole(root["pre_tokenizer"]);
      words.steps.push_back(split_before(mark));
    }
    pipeline->model = bpe_model(std::move(bpe));
  } else {
    if (words.of_bytes) model.refuse("is a WordPiece behind a ByteLevel, which is not read");
    pipeline->model = word_piece_model(read_word_piece(model, tokens));
  }
  Added added = read_added(root["added_tokens"], tokens, pipeline->normalizers);
  pipeline->spelled = AddedTokens(std::move(added.raw));
  pipeline->spelled_normally = AddedTokens(std::move(added.normalized));
  pipeline->spelling = std::make_unique<const TokenSpelling>(spelling_of(root["decoder"], tokens, added.special));
  pipeline->specials = special_tokens(special_token_names(path.parent_path()),
                                      [&](const std::string& name) { return tokens.find(name); });
  pipeline->pre_tokenizers = std::move(words.steps);
  return pipeline;
}

std::shared_ptr<const TokenizerPipeline> read_vocab_txt(const fs::path& path) {
  const FileText file(path);
  json::object vocabulary;
  std::size_t begin = 0;
  while (begin < file.text().size()) {
    const std::size_t end = std::min(file.text().find('\n', begin), file.text().size());
    std::string_view line = file.text().substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto number = static_cast<std::int64_t>(vocabulary.size());
    if (!vocabulary.emplace(json::string_view(line.data(), line.size()), number).second)
      fail(ErrorCode::data, "{}: line {} at offset {}: a piece that an earlier line has; the file is damaged",
           file.name(), number + 1, begin);
    begin = end + 1;
  }
  BertNormalization normalization;
  const fs::path settings = path.parent_path() / "tokenizer_config.json";
  std::string settings_name = settings.string();
  json::value parsed = nullptr;
  std::error_code ignored;
  if (fs::is_regular_file(settings, ignored)) {
    const FileText text(settings);
    parsed = runtime::parse_json(text.text(), text.name());
  }
  const Node node(settings_name, "", &parsed);
  normalization.lowercase = node["do_lower_case"].flag(true);
  normalization.strip_accents = node["strip_accents"].flag(normalization.lowercase);
  normalization.handle_chinese_chars = node["tokenize_chinese_chars"].flag(true);

  json::value all = json::object{{"vocab", std::move(vocabulary)}, {"unk_token", "[UNK]"}};
  const Node model(file.name(), "", &all);
  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file.name();
  const std::string deciding =
      fmt::format("{:016x} {} {} {}", runtime::xxh3(std::as_bytes(std::span(file.text()))), normalization.lowercase,
                  normalization.strip_accents, normalization.handle_chinese_chars);
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(deciding)));
  pipeline->normalizers.push_back(bert_normalizer(normalization));
  pipeline->pre_tokenizers.push_back(split_as_bert());
  pipeline->cuts_before_spaces = true;
  Tokens tokens(model["vocab"]);
  pipeline->model = word_piece_model(read_word_piece(model, tokens));
  std::vector<AddedToken> added;
  std::vector<std::int32_t> special;
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto id = tokens.find(name);
    if (!id) continue;
    added.push_back({.content = name, .token = *id, .special = true});
    special.push_back(*id);
  }
  pipeline->spelled = AddedTokens(std::move(added));
  json::value decoder = json::object{{"type", "WordPiece"}};
  pipeline->spelling =
      std::make_unique<const TokenSpelling>(spelling_of(Node(file.name(), "decoder", &decoder), tokens, special));
  std::map<std::string, std::string> names = special_token_names(path.parent_path());
  for (const auto& [key, name] : {std::pair{"unk_token", "[UNK]"},
                                  {"sep_token", "[SEP]"},
                                  {"pad_token", "[PAD]"},
                                  {"cls_token", "[CLS]"},
                                  {"mask_token", "[MASK]"}})
    names.emplace(key, name);
  pipeline->specials = special_tokens(names, [&](const std::string& name) { return tokens.find(name); });
  return pipeline;
}

}  // namespace ranvier::models
