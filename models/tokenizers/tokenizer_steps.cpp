#include "models/tokenizers/tokenizer_steps.hpp"

#include "models/tokenizers/unicode.hpp"
#include "models/tokenizers/unicode_pattern.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace ranvier::models {
namespace {

std::string not_empty(const JsonNode& node) {
  std::string text = node.text();
  if (text.empty()) node.refuse("is empty");
  return text;
}

std::string one_character(const JsonNode& node) {
  std::string text = not_empty(node);
  if (character_bytes(text, 0) != text.size()) node.refuse("is not one character");
  return text;
}

/// Pattern of the form {"String": "…"} or {"Regex": "…"}.
struct Pattern {
  std::string text;
  bool is_expression = false;
};
Pattern pattern_of(const JsonNode& node) {
  if (const JsonNode text = node["String"]; text.there()) return {not_empty(text), false};
  return {not_empty(node["Regex"]), true};
}

SplitBehavior behavior_of(const JsonNode& node, const char* otherwise) {
  const std::string name = node.text_or(otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.refuse(fmt::format("is an unknown behavior: '{}'", name));
}

Metaspace metaspace_of(const JsonNode& node) {
  Metaspace what{.replacement = one_character(node["replacement"])};
  const std::string scheme =
      node["prepend_scheme"].text_or(node["add_prefix_space"].flag(true) ? "always" : "never");
  if (scheme != "always" && scheme != "never" && scheme != "first")
    node["prepend_scheme"].refuse(fmt::format("is '{}', not always, never or first", scheme));
  what.prepend = scheme == "always"  ? Metaspace::Prepend::always
                 : scheme == "first" ? Metaspace::Prepend::first
                                     : Metaspace::Prepend::never;
  what.splits = node["split"].flag(true);
  return what;
}

std::string cleaned_up(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> changes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) replace_all(text, from, to);
  return text;
}

}  // namespace

void add_normalizer(const JsonNode& node, Normalizers& to) {
  if (!node.there()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& one : node["normalizers"].list()) add_normalizer(one, to);
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
        "supported are BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip and "
        "StripAccents; tokenize with the program of this tokenizer and use those tokens");
  }
}

void add_pre_tokenizer(const JsonNode& node, PreTokenizingSteps& to) {
  if (!node.there()) return;
  const std::string type = node.type();
  if (to.of_bytes) node.refuse(fmt::format("is a {} after a ByteLevel, which is not supported", type));
  if (type == "Sequence") {
    for (const JsonNode& one : node["pretokenizers"].list()) add_pre_tokenizer(one, to);
  } else if (type == "ByteLevel") {
    if (node["add_prefix_space"].flag(true)) to.steps.push_back(prefix_space());
    if (node["use_regex"].flag(true))
      to.steps.push_back(split_by(gpt2_expression, node.where(), SplitBehavior::isolated));
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
    to.steps.push_back(split_by(words_expression, node.where(), SplitBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    to.steps.push_back(split_by_white_space());
  } else if (type == "Punctuation") {
    to.steps.push_back(split_by_punctuation(behavior_of(node["behavior"], "Isolated")));
  } else if (type == "CharDelimiterSplit") {
    to.steps.push_back(
        split_by(UnicodePattern::literal(one_character(node["delimiter"])), node.where(), SplitBehavior::removed));
  } else {
    node.unknown_type(
        "supported are BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, "
        "Split, Whitespace and WhitespaceSplit; tokenize with the program of this tokenizer and use those tokens");
  }
}

void add_decoder(const JsonNode& node, DecodingSteps& to) {
  const std::string type = node.type();
  const auto per_token = [&] {
    if (to.fused) node.refuse(fmt::format("is a {} after a Fuse, which is not supported", type));
  };
  if (type == "Sequence") {
    for (const JsonNode& one : node["decoders"].list()) add_decoder(one, to);
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
      node.refuse("replaces more than one token's text, which is not supported");
    to.steps.push_back([from = from.text, content = node["content"].text()](std::string& token, bool) {
      replace_all(token, from, content);
    });
  } else if (type == "Strip") {
    const std::string content = one_character(node["content"]);
    const auto start = static_cast<int>(node["start"].whole(0, 1000));
    const auto stop = static_cast<int>(node["stop"].whole(0, 1000));
    if (to.fused) {
      if (stop > 0 || content.size() > 1 || to.strips > 0)
        node.refuse("strips the end of text, or more than one ASCII character, which is not supported");
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
        "supported are ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip and WordPiece; the "
        "tokens cannot be decoded to text");
  }
}

}  // namespace ranvier::models
