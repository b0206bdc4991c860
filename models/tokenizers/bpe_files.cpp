#include "models/tokenizers/bpe_files.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t rank = 0;
  std::int32_t token = 0;  // token that the pair becomes
};

constexpr std::int64_t max_tokens = 1 << 22;
constexpr std::size_t longest_ranked = 256;  // bytes of a token; OpenAI's encodings have at most 128
constexpr std::int64_t max_ranks = 1 << 16;  // gpt2, r50k and p50k have fewer, cl100k and later ones more

/// Collects tokens by number, in any order.
class TokenList {
 public:
  explicit TokenList(std::string file) : file_(std::move(file)) {}

  void add(std::int64_t id, std::string bytes) {
    if (id < 0 || id >= max_tokens)
      fail(ErrorCode::data, "{}: token number {} is not between 0 and {}", file_, id, max_tokens - 1);
    if (!by_id_.emplace(static_cast<std::int32_t>(id), std::move(bytes)).second)
      fail(ErrorCode::data, "{}: two tokens have number {}; download the file again", file_, id);
  }
  [[nodiscard]] bool has(std::int32_t id) const { return by_id_.contains(id); }
  [[nodiscard]] std::int32_t first_free() const {
    std::int32_t free = 0;
    while (has(free)) ++free;
    return free;
  }
  /// All tokens in numeric order. Throws if a number is missing.
  [[nodiscard]] std::vector<std::string> all() const {
    const std::int32_t free = first_free();
    if (static_cast<std::size_t>(free) != by_id_.size())
      fail(ErrorCode::data, "{}: token {} is missing, but later ones exist; download the file again", file_, free);
    std::vector<std::string> tokens;
    for (const auto& [id, bytes] : by_id_) tokens.push_back(bytes);
    return tokens;
  }

 private:
  std::string file_;
  std::map<std::int32_t, std::string> by_id_;
};

/// {"spelling": number}; the end-of-text token is not byte-encoded.
class NamedTokens {
 public:
  NamedTokens(const std::string& file, const JsonNode& vocabulary) : file_(file), list_(file) {
    const boost::json::object& object = vocabulary.object();
    ids_.reserve(object.size());
    for (const auto& [key, value] : object) {
      const std::string_view name = key;
      if (!value.is_int64()) fail(ErrorCode::data, "{}: the number of token '{}' is not an integer", file_, name);
      add(name, value.get_int64());
    }
  }

  void add(std::string_view name, std::int64_t id) {
    const bool ends = name == end_of_text_spelling;
    std::string bytes(name);
    if (!ends && !bytes_of_spelling(name, bytes))
      fail(ErrorCode::data, "{}: token '{}' is not in GPT-2's byte alphabet", file_, name);
    list_.add(id, bytes);
    if (ends) end_of_text_ = static_cast<std::int32_t>(id);
    if (!ends) ids_.emplace(std::move(bytes), static_cast<std::int32_t>(id));
  }
  [[nodiscard]] const TokenList& list() const { return list_; }

  [[nodiscard]] std::int32_t end_of_text() const {
    if (!end_of_text_)
      fail(ErrorCode::data, "{}: token '{}' is missing; use an encoding with this token", file_,
           end_of_text_spelling);
    return *end_of_text_;
  }

  /// Merge of two spellings; `where` is its location in messages.
  [[nodiscard]] Merge merge(std::string_view left, std::string_view right, std::size_t rank,
                            const std::string& where) const {
    Merge merge{.rank = static_cast<std::int32_t>(rank)};
    const auto find = [&](std::string_view name) {
      std::string bytes;
      const auto found = bytes_of_spelling(name, bytes) ? ids_.find(bytes) : ids_.end();
      if (found == ids_.end())
        fail(ErrorCode::data, "{}: merge of '{}' and '{}': '{}' is not a token of {}", where, left, right, name,
             file_);
      return found->second;
    };
    merge.left = find(left);
    merge.right = find(right);
    merge.token = find(std::string(left) + std::string(right));
    return merge;
  }

 private:
  std::string file_;
  TokenList list_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::optional<std::int32_t> end_of_text_;
};

/// Checks that each token is created by one merge, after the merges that create its parts. Otherwise tokenizers would
/// differ: OpenAI's encoder merges all pairs of the lowest rank at once, others only the first pair.
void check_order(const FileText& file, const std::vector<Merge>& merges, const std::vector<std::size_t>& offsets,
                 const std::vector<std::string>& tokens) {
  std::vector<bool> made(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) made[id] = tokens[id].size() == 1;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Merge& merge = merges[i];
    const auto is_made = [&](std::int32_t token) { return made[static_cast<std::size_t>(token)]; };
    if (!is_made(merge.left) || !is_made(merge.right))
      fail(ErrorCode::data,
           "{}: the merge at offset {} joins a token that no earlier merge creates; download the file again",
           file.name(), offsets[i]);
    if (is_made(merge.token))
      fail(ErrorCode::data,
           "{}: the merge at offset {} creates the same token as an earlier one; download the file again",
           file.name(), offsets[i]);
    made[static_cast<std::size_t>(merge.token)] = true;
  }
}

/// A byte-level BPE that splits text as GPT-2 does. `tokens`: bytes of the tokens by number, each with other bytes than
/// all others except `end_of_text`. If two merges join the same pair, the lower rank applies.
std::shared_ptr<const TokenizerPipeline> make_pipeline(const std::string& file,
                                                       const std::vector<std::string>& tokens,
                                                       std::int32_t end_of_text, const std::vector<Merge>& merges) {
  BpeModel bpe{.of_bytes = true, .merges = MergeTable(merges.size())};
  std::vector<bool> silent(tokens.size());
  silent[static_cast<std::size_t>(end_of_text)] = true;
  std::string all;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (tokens[i].empty()) fail(ErrorCode::data, "{}: token {} is empty; download the file again", file, id);
    all += tokens[i];
    if (id == end_of_text) continue;
    if (const std::int32_t other = bpe.pieces.find(tokens[i]); other >= 0)
      fail(ErrorCode::data, "{}: tokens {} and {} have the same bytes; download the file again", file, other, id);
    bpe.pieces.add(tokens[i], id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char spelling = static_cast<char>(byte);
    if (bpe.pieces.find({&spelling, 1}) < 0)
      fail(ErrorCode::data, "{}: byte {} is not a token; use a byte-level encoding such as GPT-2's", file, byte);
  }
  for (const Merge& merge : merges)
    bpe.merges.add(merge.left, merge.right, {static_cast<std::uint32_t>(merge.rank), merge.token});
  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file;
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(all)));
  pipeline->spelled =
      AddedTokens({{.content = std::string(end_of_text_spelling), .token = end_of_text, .special = true}});
  pipeline->splits_like_gpt2 = true;
  pipeline->model = bpe_model(std::move(bpe));
  pipeline->spelling = std::make_unique<const TokenSpelling>(tokens, silent, std::vector<TokenSpelling::Step>());
  pipeline->specials.end_of_text = end_of_text;
  return pipeline;
}

std::shared_ptr<const TokenizerPipeline> read_encoder(const fs::path& names_path, const fs::path& merges_path) {
  const JsonFile names_file(names_path);
  const FileText merges_file(merges_path);
  const NamedTokens names(names_file.name(), names_file.root());
  const std::vector<std::string> tokens = names.list().all();
  std::vector<Merge> merges;
  std::vector<std::size_t> offsets;
  for_each_line(merges_file.text(), [&](std::string_view line, std::size_t number, std::size_t offset) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const std::string where = fmt::format("{}: line {} at offset {}", merges_file.name(), number, offset);
    const std::size_t blank = line.find(' ');
    if (blank == 0 || blank >= line.size() - 1 || line.find(' ', blank + 1) != std::string_view::npos)
      fail(ErrorCode::data, "{}: a merge is not two tokens with a space between them", where);
    merges.push_back(names.merge(line.substr(0, blank), line.substr(blank + 1), merges.size(), where));
    offsets.push_back(offset);
  });
  check_order(merges_file, merges, offsets, tokens);
  return make_pipeline(names_file.name(), tokens, names.end_of_text(), merges);
}

/// Decoded base64; empty if invalid.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return {};
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pads = i >= text.size() - padding;
    const std::size_t digit = pads ? 0 : digits.find(text[i]);
    if (digit == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xff);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

std::shared_ptr<const TokenizerPipeline> read_ranks(const fs::path& path) {
  const FileText file(path);
  TokenList list(file.name());
  for_each_line(file.text(), [&](std::string_view line, std::size_t number, std::size_t offset) {
    if (line.empty()) return;
    const std::size_t blank = std::min(line.find(' '), line.size());
    const auto bytes = from_base64(line.substr(0, blank));
    std::int64_t rank = 0;
    const char* const begin = line.data() + std::min(blank + 1, line.size());
    const auto [end, error] = std::from_chars(begin, line.data() + line.size(), rank);
    if (!bytes || error != std::errc{} || end != line.data() + line.size())
      fail(ErrorCode::data, "{}: line {} at offset {} is not a base64 token, a space and a rank", file.name(),
           number, offset);
    if (rank >= max_ranks)
      fail(ErrorCode::data,
           "{}: rank {} is too high: encodings with more than {} tokens split text differently from GPT-2",
           file.name(), rank, max_ranks);
    if (bytes->size() > longest_ranked)
      fail(ErrorCode::data, "{}: the token in line {} at offset {} has {} bytes; at most {} are supported",
           file.name(), number, offset, bytes->size(), longest_ranked);
    list.add(rank, *bytes);
  });
  const std::int32_t end_of_text = list.first_free();
  list.add(end_of_text, std::string(end_of_text_spelling));
  const std::vector<std::string> tokens = list.all();

  // Ranks replace merges: neighbours are merged if their concatenation is a token.
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (static_cast<std::int32_t>(id) != end_of_text) ids.emplace(tokens[id], static_cast<std::int32_t>(id));
  std::vector<Merge> merges;
  for (const auto& [bytes, id] : ids) {
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      const auto right = left == ids.end() ? ids.end() : ids.find(bytes.substr(cut));
      if (right != ids.end()) merges.push_back({left->second, right->second, id, id});
    }
  }
  return make_pipeline(file.name(), tokens, end_of_text, merges);
}

std::vector<fs::path> rank_files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (entry->path().extension() == ".tiktoken") found.push_back(entry->path());
  if (error) fail(ErrorCode::io, "{}: cannot read the folder: {}", folder.string(), error.message());
  return found;
}

constexpr std::array encoder_files = {std::pair{"encoder.json", "vocab.bpe"},
                                      std::pair{"vocab.json", "merges.txt"}};

}  // namespace

std::shared_ptr<const TokenizerPipeline> read_bpe_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return read_ranks(path);
  for (const auto& [names, merges] : encoder_files)
    if (is_file(path / names) && is_file(path / merges)) return read_encoder(path / names, path / merges);
  const auto ranks = rank_files_in(path);
  if (ranks.size() == 1) return read_ranks(ranks.front());
  fail(ErrorCode::io,
       "{}: {}; use a folder with encoder.json and vocab.bpe, with tokenizer.json, or with one .tiktoken file",
       path.string(), ranks.empty() ? "no tokenizer found" : "several .tiktoken files found");
}

bool has_bpe_files(const fs::path& folder) {
  const bool encoder = std::any_of(encoder_files.begin(), encoder_files.end(), [&](const auto& pair) {
    return is_file(folder / pair.first) && is_file(folder / pair.second);
  });
  return encoder || !rank_files_in(folder).empty();
}

std::shared_ptr<const TokenizerPipeline> read_gpt2_json(const JsonFile& file) {
  const JsonNode root = file.root();
  NamedTokens names(file.name(), root["model"]["vocab"]);
  if (const JsonNode added = root["added_tokens"]; added.there()) {
    for (const JsonNode& one : added.list()) {
      const auto id = static_cast<std::int32_t>(one["id"].whole(0, max_tokens - 1));
      if (!names.list().has(id)) names.add(end_of_text_spelling, id);
    }
  }
  std::vector<Merge> merges;
  for (const JsonNode& one : root["model"]["merges"].list()) {
    const std::string where = fmt::format("{}: merge {}", file.name(), merges.size());
    const auto [left, right] = merged_tokens(*one.value());
    if (left.empty() || right.empty()) fail(ErrorCode::data, "{}: a merge is not two tokens", where);
    merges.push_back(names.merge(left, right, merges.size(), where));
  }
  return make_pipeline(file.name(), names.list().all(), names.end_of_text(), merges);
}

}  // namespace ranvier::models
