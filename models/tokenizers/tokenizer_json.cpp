#include "models/tokenizers/tokenizer_json.hpp"

#include "models/tokenizers/bpe_files.hpp"
#include "models/tokenizers/text_template.hpp"
#include "models/tokenizers/tokenizer_steps.hpp"
#include "models/tokenizers/unicode.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"

#include <boost/json/value.hpp>

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::int64_t max_tokens = 1 << 22;

/// Largest valid token number; the vocabulary may have gaps.
std::int64_t largest_of(std::size_t tokens) {
  return std::min<std::int64_t>(4 * static_cast<std::int64_t>(tokens) + 1024, max_tokens) - 1;
}

/// Tokens by name and by number.
class TokenNames {
 public:
  explicit TokenNames(const JsonNode& vocabulary) {
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

  [[nodiscard]] std::optional<std::int32_t> find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Adds a token; one of the vocabulary must keep its number. `id` is the value of `of`.
  std::int32_t add(const std::string& content, std::int32_t id, const JsonNode& of) {
    const auto [found, is_new] = ids_.emplace(content, id);
    if (!is_new) return found->second;
    if (const auto i = static_cast<std::size_t>(id); i < spellings_.size() && !spellings_[i].empty())
      of.refuse(fmt::format("is {}, already the number of '{}'; download the file again", id, spellings_[i]));
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
  std::vector<std::string> spellings_;  // by number; some numbers may be unused
};

/// Whether a key has a value that is neither empty nor zero.
bool is_set(const JsonNode& node) {
  return node.there() && !(node.value()->is_string() && node.value()->get_string().empty()) &&
         !(node.value()->is_number() && node.value()->to_number<double>() == 0);
}

/// `of_bytes`: pieces are bytes in GPT-2's spelling.
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

struct AddedTokenLists {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::int32_t> special;
};

/// Reads a list of added tokens; adds their numbers to `tokens`.
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

TokenSpelling spelling_of(const JsonNode& decoder, const TokenNames& tokens,
                          const std::vector<std::int32_t>& special) {
  DecodingSteps decoding;
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

/// Type of the model, inferred for older files without it.
std::string model_type(const JsonNode& model) {
  static_cast<void>(model.object());
  if (model["type"].there()) return model.type();
  return model["merges"].there() ? "BPE" : model["vocab"].there() && model["unk_token"].there() ? "WordPiece" : "";
}

/// Whether the pre-tokenizer does not split text.
bool leaves_texts_whole(const JsonNode& pre_tokenizer) {
  if (!pre_tokenizer.there()) return true;
  const std::string type = pre_tokenizer.type();
  return (type == "Metaspace" && !pre_tokenizer["split"].flag(true)) ||
         (type == "ByteLevel" && !pre_tokenizer["use_regex"].flag(true));
}

std::vector<std::string> words_of(const PreTokenizers& steps, const std::string& text, TextPosition place) {
  CutText words{text, {}};
  if (!text.empty()) words.ranges.push_back({0, text.size()});
  for (const auto& step : steps) step.cut(words, place);
  std::vector<std::string> found;
  for (const auto& [begin, end] : words.ranges) found.push_back(words.text.substr(begin, end - begin));
  return found;
}

/// Whether the steps start a word at every space after another character, regardless of context. Also requires that
/// they treat the normalized form of a space as a space.
bool cuts(const PreTokenizers& steps, const Normalizers& normalizers) {
  const auto first_that_counts = std::find_if(
      steps.begin(), steps.end(), [](const auto& step) { return step.cuts_before_spaces || !step.is_local; });
  if (first_that_counts == steps.end() || !first_that_counts->cuts_before_spaces) return false;
  std::string space = " ";
  for (const auto& step : normalizers) step.apply(space, {false, false});
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
    if (!is_file(folder / file)) continue;
    const JsonFile parsed(folder / file);
    const JsonNode root = parsed.root();
    static_cast<void>(root.object());
    for (const char* key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      const JsonNode node = root[key];
      if (!node.there() || names.contains(key)) continue;
      names[key] = node.value()->is_object() ? node["content"].text() : node.text();
    }
  }
  return names;
}

bool is_of_gpt2s_kind(const JsonFile& file) {
  const JsonNode root = file.root();
  static_cast<void>(root.object());
  const JsonNode model = root["model"], words = root["pre_tokenizer"];
  if (model_type(model) != "BPE" || !words.there() || root["normalizer"].there() || words.type() != "ByteLevel" ||
      words["add_prefix_space"].flag(true) || !words["use_regex"].flag(true))
    return false;
  const TextTemplate around =
      text_template(root["post_processor"], file.folder(), 0, 0, [](const std::string&) { return 0; });
  if (!around.beginning.empty() || !around.ending.empty()) return false;
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "unk_token"})
    if (is_set(model[key])) return false;
  if (model["ignore_merges"].flag(false) || model["byte_fallback"].flag(false)) return false;
  bool ends = model["vocab"][end_of_text_spelling].there();
  if (const JsonNode added = root["added_tokens"]; added.there()) {
    for (const JsonNode& one : added.list()) {
      if (one["content"].text() != end_of_text_spelling || !one["special"].flag(false)) return false;
      ends = true;
    }
  }
  return ends;
}

std::shared_ptr<const TokenizerPipeline> read_tokenizer_json(const JsonFile& file) {
  const JsonNode root = file.root();
  static_cast<void>(root.object());
  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file.name();
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(file.text())));
  add_normalizer(root["normalizer"], pipeline->normalizers);
  PreTokenizingSteps words;
  add_pre_tokenizer(root["pre_tokenizer"], words);
  pipeline->cuts_before_spaces = cuts(words.steps, pipeline->normalizers);

  const JsonNode model = root["model"];
  const std::string type = model_type(model);
  if (type != "BPE" && type != "WordPiece")
    model.refuse(
        fmt::format("has unsupported type '{}'; supported are BPE and WordPiece; tokenize with the program "
                    "of this tokenizer and use those tokens",
                    type));
  TokenNames tokens(model["vocab"]);
  if (tokens.ids().empty()) model["vocab"].refuse("has no tokens");
  if (type == "BPE") {
    BpeModel bpe = read_bpe(model, tokens, words.of_bytes);
    // Words that are whole texts are cut where no merge joins anything, so that most are met again.
    const std::string mark = words.of_bytes ? " " : "\u2581";
    if (!pipeline->cuts_before_spaces && !bpe.ignore_merges && joins_nothing_before(bpe.pieces, mark)) {
      std::string space = " ";
      for (const auto& step : pipeline->normalizers) step.apply(space, {false, false});
      for (const auto& step : words.steps) {
        CutText one{space, {{0, space.size()}}};
        step.cut(one, {false, false});
        space = one.text;
      }
      pipeline->cuts_before_spaces = space == mark && leaves_texts_whole(root["pre_tokenizer"]);
      words.steps.push_back(split_before(mark));
    }
    pipeline->model = bpe_model(std::move(bpe));
  } else {
    if (words.of_bytes) model.refuse("is a WordPiece after a ByteLevel, which is not supported");
    pipeline->model = word_piece_model(read_word_piece(model, tokens));
  }
  AddedTokenLists added = read_added(root["added_tokens"], tokens, pipeline->normalizers);
  pipeline->spelled = AddedTokens(std::move(added.raw));
  pipeline->spelled_normally = AddedTokens(std::move(added.normalized));
  pipeline->spelling = std::make_unique<const TokenSpelling>(spelling_of(root["decoder"], tokens, added.special));
  const auto find = [&](const std::string& name) { return tokens.find(name); };
  pipeline->specials = special_tokens(special_token_names(file.folder()), find);
  const SpecialTokens& specials = pipeline->specials;
  pipeline->around =
      text_template(root["post_processor"], file.folder(), specials.begin_of_text, specials.end_of_text, find);
  pipeline->pre_tokenizers = std::move(words.steps);
  return pipeline;
}

std::shared_ptr<const TokenizerPipeline> read_vocab_txt(const fs::path& path) {
  const FileText file(path);
  json::object vocabulary;
  for_each_line(file.text(), [&](std::string_view line, std::size_t number, std::size_t offset) {
    const auto id = static_cast<std::int64_t>(number - 1);
    if (!vocabulary.emplace(json::string_view(line.data(), line.size()), id).second)
      fail(ErrorCode::data,
           "{}: line {} at offset {} repeats the piece of an earlier line; download the file again", file.name(),
           number, offset);
  });
  BertNormalization normalization;
  const fs::path settings = path.parent_path() / "tokenizer_config.json";
  if (is_file(settings)) {
    const JsonFile parsed(settings);
    const JsonNode node = parsed.root();
    normalization.lowercase = node["do_lower_case"].flag(true);
    normalization.strip_accents = node["strip_accents"].flag(normalization.lowercase);
    normalization.handle_chinese_chars = node["tokenize_chinese_chars"].flag(true);
  }

  json::value all = json::object{{"vocab", std::move(vocabulary)}, {"unk_token", "[UNK]"}};
  const JsonNode model(file.name(), "", &all);
  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file.name();
  const std::string deciding =
      fmt::format("{:016x} {} {} {}", runtime::xxh3(std::as_bytes(std::span(file.text()))), normalization.lowercase,
                  normalization.strip_accents, normalization.handle_chinese_chars);
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(deciding)));
  pipeline->normalizers.push_back(bert_normalizer(normalization));
  pipeline->pre_tokenizers.push_back(split_as_bert());
  pipeline->cuts_before_spaces = true;
  TokenNames tokens(model["vocab"]);
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
  pipeline->spelling = std::make_unique<const TokenSpelling>(
      spelling_of(JsonNode(file.name(), "decoder", &decoder), tokens, special));
  std::map<std::string, std::string> names = special_token_names(path.parent_path());
  for (const auto& [key, name] : {std::pair{"unk_token", "[UNK]"},
                                  {"sep_token", "[SEP]"},
                                  {"pad_token", "[PAD]"},
                                  {"cls_token", "[CLS]"},
                                  {"mask_token", "[MASK]"}})
    names.emplace(key, name);
  pipeline->specials = special_tokens(names, [&](const std::string& name) { return tokens.find(name); });
  if (const auto classifier = pipeline->specials.classifier) pipeline->around.beginning = {*classifier};
  if (const auto separator = pipeline->specials.separator) pipeline->around.ending = {*separator};
  return pipeline;
}

}  // namespace ranvier::models
