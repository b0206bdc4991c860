// A byte-level BPE small enough to be created in a test, in every supported file format. Also a plain encoder as a
// reference for the fast one: OpenAI's encoder.py, on characters and strings.
#pragma once

#include "models/tokenizers/unicode.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::tests {

struct SmallTokenizer {
  /// Pairs of byte strings, in the order of their ranks; each joins bytes or results of earlier merges.
  std::vector<std::pair<std::string, std::string>> merges = {
      {" ", "t"},    {"h", "e"},  {" t", "he"},         {"i", "n"},       {"a", "a"},       {"aa", "aa"},
      {"r", "e"},    {" ", " "},  {"  ", "  "},         {"\xe4", "\xb8"}, {"\n", "\n"},     {"'", "s"},
      {" ", "w"},    {"o", "r"},  {" w", "or"},         {"l", "d"},       {" wor", "ld"},   {"\xff", "\xff"},
      {"1", "2"},    {"12", "3"}, {"e", "n"},           {"b", "a"},       {"\xf0", "\x9f"}, {"\xf0\x9f", "\x98"},
      {"aaaa", "a"}, {"<", "|"},  {"\xe4\xb8", "\xad"}, {"in", "g"},
  };

  [[nodiscard]] int end_of_text() const { return 256 + static_cast<int>(merges.size()); }

  /// Tokens by number in GPT-2's order: bytes in the order of their spellings, merges, the end of text.
  [[nodiscard]] std::vector<std::string> tokens() const {
    std::vector<std::string> list;
    for (const auto& [character, byte] : alphabet()) list.emplace_back(1, byte);
    for (const auto& [left, right] : merges) list.push_back(left + right);
    list.emplace_back("<|endoftext|>");
    return list;
  }

  /// Characters and the bytes that they spell, in GPT-2's order.
  [[nodiscard]] static std::vector<std::pair<char32_t, char>> alphabet() {
    std::vector<std::pair<char32_t, char>> list;
    char32_t next = 256;
    for (const bool printed : {true, false})  // as themselves
      for (int byte = 0; byte < 256; ++byte)
        if (((byte > 32 && byte < 127) || (byte > 160 && byte != 173)) == printed)
          list.emplace_back(printed ? static_cast<char32_t>(byte) : next++, static_cast<char>(byte));
    return list;
  }

  [[nodiscard]] static std::string spelled(const std::string& bytes) {
    std::map<char, char32_t> characters;
    for (const auto& [character, byte] : alphabet()) characters[byte] = character;
    std::string text;
    for (const char byte : bytes) models::append_utf8(characters.at(byte), text);
    return text;
  }

  [[nodiscard]] static std::string in_json(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    return out + '"';
  }

  [[nodiscard]] std::string encoder_json() const {
    std::string json;
    const auto list = tokens();
    for (std::size_t id = 0; id < list.size(); ++id) {
      const std::string name = static_cast<int>(id) == end_of_text() ? list[id] : spelled(list[id]);
      json += (id == 0 ? "{" : ", ") + in_json(name) + ": " + std::to_string(id);
    }
    return json + "}";
  }

  [[nodiscard]] std::string vocab_bpe() const {
    std::string text = "#version: 0.2\n";
    for (const auto& [left, right] : merges) text += spelled(left) + " " + spelled(right) + "\n";
    return text;
  }

  /// `as_pairs`: merges in the newer format.
  [[nodiscard]] std::string tokenizer_json(bool as_pairs = false) const {
    std::string list;
    for (const auto& [left, right] : merges) {
      list += list.empty() ? "" : ", ";
      list += as_pairs ? fmt::format("[{}, {}]", in_json(spelled(left)), in_json(spelled(right)))
                       : in_json(fmt::format("{} {}", spelled(left), spelled(right)));
    }
    return std::string(R"({"version": "1.0", "truncation": null, "added_tokens": [{"id": )") +
           std::to_string(end_of_text()) +
           R"(, "content": "<|endoftext|>", "special": true}], "normalizer": null, "pre_tokenizer": )"
           R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, )"
           R"("model": {"type": "BPE", "dropout": null, "continuing_subword_prefix": "", "vocab": )" +
           encoder_json() + R"(, "merges": [)" + list + "]}}";
  }

  /// With the special tokens <s>, </s> and <|user|> after the end of text, and a template such as "<s> A </s>".
  [[nodiscard]] std::string framed_json(const std::string& single) const {
    std::string json = tokenizer_json(), pieces, added;
    std::istringstream words(single);
    for (std::string word; words >> word;)
      pieces += fmt::format(R"({}{{"{}": {{"id": "{}"}}}})", pieces.empty() ? "" : ", ",
                            word == "A" ? "Sequence" : "SpecialToken", word);
    for (const char* name : {"<s>", "</s>", "<|user|>"})
      added += fmt::format(R"(, {{"id": {}, "content": "{}", "special": true}})",
                           end_of_text() + 1 + static_cast<int>(std::count(added.begin(), added.end(), '{')), name);
    const std::string last = R"("special": true})";
    json.insert(json.find(last) + last.size(), added);
    return json.insert(1, R"("post_processor": {"type": "TemplateProcessing", "single": [)" + pieces + "]}, ");
  }

  [[nodiscard]] std::string tiktoken() const {
    static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    const auto list = tokens();
    for (int id = 0; id < end_of_text(); ++id) {
      const std::string& bytes = list[static_cast<std::size_t>(id)];
      for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t bits = 0;
        const std::size_t here = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t k = 0; k < 3; ++k)
          bits = bits << 8 | (k < here ? static_cast<std::uint8_t>(bytes[i + k]) : 0);
        for (std::size_t k = 0; k < 4; ++k) text += k <= here ? digits[bits >> (18 - 6 * k) & 63] : '=';
      }
      text += fmt::format(" {}\n", id);
    }
    return text;
  }

  /// The words of encoder.py's expression. `kinds` has the class of characters other than ASCII; a byte outside
  /// characters is 'o', other. Kinds: letter 'l', number 'n', blank 'b', other 'o'.
  [[nodiscard]] static std::vector<std::string> words(const std::string& text,
                                                      const std::map<char32_t, char>& kinds) {
    std::vector<std::string> characters;
    std::vector<char> kind;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = models::character_bytes(text, at);
      const char32_t c = length == 0 ? 0 : models::character_at(text, at);
      characters.push_back(text.substr(at, std::max<std::size_t>(length, 1)));
      at += characters.back().size();
      if (length == 0)
        kind.push_back('o');
      else if (c >= 0x80)
        kind.push_back(kinds.at(c));
      else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        kind.push_back('l');
      else if (c >= '0' && c <= '9')
        kind.push_back('n');
      else
        kind.push_back(c == ' ' || (c >= 9 && c <= 13) ? 'b' : 'o');
    }
    const std::size_t n = characters.size();
    const auto run = [&](std::size_t at) {  // returns the end of a run of characters of one kind
      std::size_t end = at;
      while (end < n && kind[end] == kind[at]) ++end;
      return end;
    };
    std::vector<std::string> found;
    for (std::size_t at = 0; at < n;) {
      std::size_t end = 0;
      if (characters[at] == "'") {
        for (const char* tail : {"s", "t", "re", "ve", "m", "ll", "d"}) {
          const std::size_t length = std::string(tail).size();
          std::string next;
          for (std::size_t i = at + 1; i < std::min(n, at + 1 + length); ++i) next += characters[i];
          if (end == 0 && next == tail) end = at + 1 + length;
        }
      }
      if (end == 0 && kind[at] != 'b') end = run(at);
      if (end == 0 && characters[at] == " " && at + 1 < n && kind[at + 1] != 'b') end = run(at + 1);
      if (end == 0) end = run(at) == n || run(at) == at + 1 ? run(at) : run(at) - 1;
      std::string word;
      for (; at < end; ++at) word += characters[at];
      found.push_back(word);
    }
    return found;
  }

  [[nodiscard]] std::vector<std::int32_t> encoded(const std::string& text,
                                                  const std::map<char32_t, char>& kinds = {}) const {
    std::map<std::string, std::int32_t> numbers;
    const auto list = tokens();
    for (std::size_t id = 0; id + 1 < list.size(); ++id) numbers[list[id]] = static_cast<std::int32_t>(id);
    std::map<std::string, std::vector<std::int32_t>> known;  // texts repeat their words
    std::vector<std::int32_t> result;
    for (const auto& word : words(text, kinds)) {
      const auto [entry, is_new] = known.try_emplace(word);
      if (is_new)
        for (const auto& part : merged(word)) entry->second.push_back(numbers.at(part));
      result.insert(result.end(), entry->second.begin(), entry->second.end());
    }
    return result;
  }

 private:
  /// A word in as few parts as merges leave: the first merge that joins any parts joins all that it can, repeatedly.
  [[nodiscard]] std::vector<std::string> merged(const std::string& word) const {
    std::vector<std::string> parts;
    for (const char byte : word) parts.emplace_back(1, byte);
    for (bool joined = true; joined;) {
      joined = false;
      for (const auto& [left, right] : merges) {
        for (std::size_t at = 0; at + 1 < parts.size(); ++at) {
          if (parts[at] != left || parts[at + 1] != right) continue;
          parts[at] += parts[at + 1];
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
          joined = true;
        }
        if (joined) break;
      }
    }
    return parts;
  }
};

}  // namespace ranvier::tests
