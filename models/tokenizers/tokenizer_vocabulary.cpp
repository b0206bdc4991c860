#include "models/tokenizers/tokenizer_vocabulary.hpp"

#include "models/tokenizers/token_spelling.hpp"
#include "models/tokenizers/unicode.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace ranvier::models {
namespace {

namespace json = boost::json;

constexpr std::int64_t max_tokens = 1 << 22;

/// Largest valid token number; the vocabulary may have gaps.
std::int64_t largest_of(std::size_t tokens) {
  return std::min<std::int64_t>(4 * static_cast<std::int64_t>(tokens) + 1024, max_tokens) - 1;
}

}  // namespace

TokenNames::TokenNames(const JsonNode& vocabulary) {
  const json::object& object = vocabulary.object();
  ids_.reserve(object.size());
  std::set<std::int32_t> taken;
  for (const auto& [name, id] : object) {
    const std::string_view spelling(name.data(), name.size());
    const std::int64_t most = largest_of(object.size());
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > most)
      vocabulary.refuse(fmt::format("does not give token '{}' an integer from 0 to {}", spelling, most));
    const auto number = static_cast<std::int32_t>(id.get_int64());
    if (!taken.insert(number).second)
      vocabulary.refuse(fmt::format("has two tokens with number {}; download the file again", number));
    ids_.emplace(std::string(spelling), number);
    note(number, spelling);
  }
}

std::int32_t TokenNames::add(const std::string& content, std::int32_t id, const JsonNode& of) {
  const auto [found, is_new] = ids_.emplace(content, id);
  if (!is_new) return found->second;
  if (const auto i = static_cast<std::size_t>(id); i < spellings_.size() && !spellings_[i].empty())
    of.refuse(fmt::format("is {}, already the number of '{}'; download the file again", id, spellings_[i]));
  note(id, content);
  return id;
}

void TokenNames::note(std::int32_t id, std::string_view spelling) {
  const auto i = static_cast<std::size_t>(id);
  if (spellings_.size() <= i) spellings_.resize(i + 1);
  spellings_[i] = spelling;
}

bool is_set(const JsonNode& node) {
  return node.there() && !(node.value()->is_string() && node.value()->get_string().empty()) &&
         !(node.value()->is_number() && node.value()->to_number<double>() == 0);
}

BpeModel read_bpe(const JsonNode& model, const TokenNames& tokens, bool of_bytes) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (is_set(model[key]))
      model[key].refuse("is set, but not supported; tokenize with the program of this tokenizer");
  BpeModel bpe{.of_bytes = of_bytes,
               .ignore_merges = model["ignore_merges"].flag(false),
               .byte_fallback = model["byte_fallback"].flag(false) && !of_bytes,
               .fuse_unknown = model["fuse_unk"].flag(false)};
  if (const JsonNode unknown = model["unk_token"]; unknown.there()) {
    const auto id = tokens.find(unknown.text());
    if (!id) unknown.refuse(fmt::format("is not a token: '{}'", unknown.text()));
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
  const std::vector<JsonNode> merges = model["merges"].list();
  bpe.merges = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto both = merged_tokens(*merges[rank].value());
    const std::string left(both.first), right(both.second);
    if (left.empty() || right.empty()) merges[rank].refuse("is not two tokens");
    const auto find = [&](const std::string& name) {
      const auto id = tokens.find(name);
      if (!id) merges[rank].refuse(fmt::format("joins '{}' and '{}', but '{}' is not a token", left, right, name));
      return *id;
    };
    bpe.merges.add(find(left), find(right), {static_cast<std::uint32_t>(rank), find(left + right)});
  }
  return bpe;
}

WordPieceModel read_word_piece(const JsonNode& model, const TokenNames& tokens) {
  WordPieceModel pieces{.continuing_prefix = model["continuing_subword_prefix"].text_or("##")};
  const JsonNode unknown = model["unk_token"];
  const auto id = tokens.find(unknown.text_or("[UNK]"));
  if (!id) unknown.refuse(fmt::format("is not a token: '{}'", unknown.text_or("[UNK]")));
  pieces.unknown = *id;
  if (const JsonNode longest = model["max_input_chars_per_word"]; longest.there())
    pieces.longest_word = static_cast<std::size_t>(longest.whole(0, 1 << 30));
  for (const auto& [name, number] : tokens.ids()) pieces.pieces.add(name, number);
  return pieces;
}

AddedTokenLists read_added(const JsonNode& list, TokenNames& tokens, const Normalizers& normalizers) {
  AddedTokenLists added;
  if (!list.there()) return added;
  for (const JsonNode& one : list.list()) {
    AddedToken token{.content = one["content"].text(),
                     .special = one["special"].flag(false),
                     .single_word = one["single_word"].flag(false),
                     .strips_left = one["lstrip"].flag(false),
                     .strips_right = one["rstrip"].flag(false)};
    const JsonNode id = one["id"];
    token.token =
        tokens.add(token.content, static_cast<std::int32_t>(id.whole(0, largest_of(tokens.ids().size()))), id);
    if (token.special) added.special.push_back(token.token);
    const bool normalizes = !normalizers.empty() && one["normalized"].flag(!token.special);
    if (normalizes && first_stray_byte(token.content, 0) == token.content.size())
      for (const auto& step : normalizers) step.apply(token.content, {});
    if (token.content.empty()) continue;
    (normalizes ? added.normalized : added.raw).push_back(std::move(token));
  }
  return added;
}

}  // namespace ranvier::models
