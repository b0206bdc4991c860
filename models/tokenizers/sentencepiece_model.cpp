#include "models/tokenizers/sentencepiece_model.hpp"

#include "models/tokenizers/file_text.hpp"
#include "models/tokenizers/text_template.hpp"
#include "models/tokenizers/tokenizer_json.hpp"
#include "models/tokenizers/unicode.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "protobuf's numbers are little-endian");

constexpr std::size_t max_pieces = 1 << 22;
constexpr std::size_t longest_piece = 1024;  // bytes, each tried as a cut

/// The fields of a message in protobuf's encoding, one after another.
class Message {
 public:
  Message(const std::string& file, std::string_view bytes, std::size_t offset)
      : file_(&file), bytes_(bytes), offset_(offset) {}

  /// The next field; false: the message has ended.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    field_ = key >> 3;
    switch (key & 7) {
      case 0:
        number_ = varint();
        break;
      case 1:
        take(8);
        break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > bytes_.size() - at_) refuse("a field that exceeds the remaining bytes");
        take(static_cast<std::size_t>(size));
        break;
      }
      case 5:
        take(4);
        break;
      default:
        refuse("a field of unknown kind");
    }
    kind_ = key & 7;
    return true;
  }
  [[nodiscard]] std::uint64_t field() const { return field_; }
  [[nodiscard]] std::uint64_t number() const {
    if (kind_ != 0) refuse("a field that is not a number");
    return number_;
  }
  [[nodiscard]] bool flag() const { return number() != 0; }
  [[nodiscard]] float real() const {
    if (kind_ != 5) refuse("a field that is not a float");
    float value = 0;
    std::memcpy(&value, content_.data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::string_view text() const {
    if (kind_ != 2) refuse("a field that is not text");
    return content_;
  }
  [[nodiscard]] Message message() const { return {*file_, text(), offset_ + at_ - content_.size()}; }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::data, "{}: not a SentencePiece model, or damaged: {} at offset {}; use another file", *file_,
         what, offset_ + at_);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) refuse("a truncated number");
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number of more than 64 bits");
  }
  void take(std::size_t bytes) {
    if (bytes > bytes_.size() - at_) refuse("a field that exceeds the remaining bytes");
    content_ = bytes_.substr(at_, bytes);
    at_ += bytes;
  }

  const std::string* file_;
  std::string_view bytes_;
  std::size_t offset_;
  std::size_t at_ = 0;
  std::uint64_t field_ = 0, kind_ = 0, number_ = 0;
  std::string_view content_;
};

enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0;
  Kind kind = Kind::normal;
};

struct Model {
  std::vector<Piece> pieces;
  std::uint64_t type = 1;  // TrainerSpec.model_type: 1 unigram, 2 BPE
  bool suffixes = false, byte_fallback = false;
  std::int64_t begin = 1, end = 2, padding = -1;
  SentencePieceNormalization normalization;
  std::string characters;
};

Model parse(const FileText& file) {
  Model model;
  Message root(file.name(), file.text(), 0);
  while (root.next()) {
    if (root.field() == 1) {
      Piece piece;
      for (Message one = root.message(); one.next();) {
        if (one.field() == 1) piece.text = one.text();
        if (one.field() == 2) piece.score = one.real();
        if (one.field() == 3) {
          if (one.number() < 1 || one.number() > 6) one.refuse("a piece of unknown type");
          piece.kind = static_cast<Kind>(one.number());
        }
      }
      if (piece.text.empty() || first_stray_byte(piece.text, 0) < piece.text.size() || !std::isfinite(piece.score))
        root.refuse("a piece with empty text, text that is not UTF-8, or a score that is not finite");
      if (piece.text.size() > longest_piece) root.refuse("a piece that is too long");
      if (piece.kind == Kind::unused) root.refuse("a piece of the unsupported type UNUSED");
      if (model.pieces.size() == max_pieces) root.refuse("too many pieces");
      model.pieces.push_back(std::move(piece));
    } else if (root.field() == 2) {
      for (Message one = root.message(); one.next();) {
        const auto id = [&] {
          return static_cast<std::int64_t>(static_cast<std::int32_t>(one.number() & 0xffffffffu));
        };
        if (one.field() == 3) model.type = one.number();
        if (one.field() == 24) model.suffixes = one.flag();
        if (one.field() == 35) model.byte_fallback = one.flag();
        if (one.field() == 41) model.begin = id();
        if (one.field() == 42) model.end = id();
        if (one.field() == 43) model.padding = id();
      }
    } else if (root.field() == 3) {
      for (Message one = root.message(); one.next();) {
        if (one.field() == 2) model.characters = one.text();
        if (one.field() == 3) model.normalization.add_dummy_prefix = one.flag();
        if (one.field() == 4) model.normalization.remove_extra_whitespaces = one.flag();
        if (one.field() == 5) model.normalization.escape_whitespaces = one.flag();
      }
    }
  }
  if (model.pieces.empty()) root.refuse("no pieces");
  return model;
}

/// Replaces characters, longest match first. The table is a double array (Darts-clone) whose values are offsets of
/// zero-terminated replacements.
class CharacterMap {
 public:
  /// Spellings of `kept` are not replaced.
  CharacterMap(const std::string& file, std::string_view blob, AddedTokens kept) : kept_(std::move(kept)) {
    const auto refuse = [&] {
      fail(ErrorCode::data, "{}: normalizer_spec.precompiled_charsmap is damaged; download the file again", file);
    };
    std::uint32_t bytes = 0;
    if (blob.size() < 8) refuse();
    std::memcpy(&bytes, blob.data(), sizeof bytes);
    if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size() - 4) refuse();
    units_.resize(bytes / 4);
    std::memcpy(units_.data(), blob.data() + 4, bytes);
    texts_ = blob.substr(4 + bytes);
    if (texts_.empty() || texts_.back() != '\0' || first_stray_byte(texts_, 0) < texts_.size()) refuse();
  }

  void operator()(std::string& text, TextPosition) const {
    std::string to;
    to.reserve(text.size());
    auto kept = kept_.find(text, 0, SpecialTokenPolicy::text);
    for (std::size_t at = 0; at < text.size();) {
      if (kept && kept->begin <= at) {
        to.append(text, at, kept->end - at);
        at = kept->end;
        kept = kept_.find(text, at, SpecialTokenPolicy::text);
        continue;
      }
      std::string_view replacement;
      const std::size_t end = kept ? kept->begin : text.size();
      std::size_t bytes = longest_match(std::string_view(text).substr(at, end - at), replacement);
      if (bytes == 0) {
        bytes = character_bytes(text, at);
        replacement = std::string_view(text).substr(at, bytes);
      }
      to += replacement;
      at += bytes;
    }
    text = std::move(to);
  }

 private:
  [[nodiscard]] std::size_t longest_match(std::string_view text, std::string_view& replacement) const {
    const auto offset = [](std::uint32_t unit) -> std::size_t { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    std::size_t longest = 0;
    std::size_t node = offset(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      node ^= byte;
      if (node >= units_.size()) break;
      const std::uint32_t unit = units_[node];
      if ((unit & ((1u << 31) | 0xffu)) != byte) break;
      node ^= offset(unit);
      if (node >= units_.size()) break;
      if ((unit >> 8 & 1u) == 0) continue;
      const std::size_t at = units_[node] & 0x7fffffffu;
      if (at >= texts_.size() || character_bytes(text, 0) == 0) break;
      const bool whole = i + 1 == text.size() || (static_cast<std::uint8_t>(text[i + 1]) & 0xc0) != 0x80;
      const bool begins = (static_cast<std::uint8_t>(texts_[at]) & 0xc0) != 0x80;
      if (!whole || !begins) continue;  // only a damaged table splits characters
      replacement = std::string_view(texts_.data() + at);
      longest = i + 1;
    }
    return longest;
  }

  AddedTokens kept_;
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

/// Merges of all pairs of pieces whose concatenation is a piece, highest score first.
MergeTable merges_of(const std::vector<Piece>& pieces, const PieceTable& table) {
  std::vector<float> scores;
  for (const Piece& piece : pieces)
    if (piece.kind == Kind::normal) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  struct Merge {
    std::int32_t left, right;
    MergeTable::Joined joined;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const Piece& piece = pieces[id];
    if (piece.kind != Kind::normal || table.find(piece.text) != static_cast<std::int32_t>(id)) continue;
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin();
    const std::string_view text = piece.text;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const std::int32_t left = table.find(text.substr(0, cut));
      const std::int32_t right = left < 0 ? -1 : table.find(text.substr(cut));
      if (right >= 0)
        merges.push_back({left, right, {static_cast<std::uint32_t>(rank), static_cast<std::int32_t>(id)}});
    }
  }
  MergeTable joined(merges.size());
  for (const Merge& merge : merges) joined.add(merge.left, merge.right, merge.joined);
  return joined;
}

}  // namespace

std::shared_ptr<const TokenizerPipeline> read_sentencepiece_model(const fs::path& path) {
  const FileText file(path);
  Model model = parse(file);
  if (model.type != 2)
    fail(ErrorCode::data,
         "{}: unsupported trainer_spec.model_type (only BPE, 2): {}; tokenize with SentencePiece, and use those "
         "tokens",
         file.name(), model.type == 1 ? "UNIGRAM (1)" : fmt::format("{}", model.type));
  if (model.suffixes)
    fail(ErrorCode::data, "{}: unsupported trainer_spec.treat_whitespace_as_suffix is set", file.name());

  auto pipeline = std::make_shared<TokenizerPipeline>();
  pipeline->origin = file.name();
  pipeline->fingerprint = runtime::xxh3(std::as_bytes(std::span(file.text())));
  BpeModel bpe{.byte_fallback = model.byte_fallback, .fuse_unknown = true};
  bpe.bytes.fill(-1);
  std::vector<AddedToken> control, defined;
  std::vector<std::string> spellings;
  std::vector<bool> silent;
  PieceTable all;
  for (const Piece& piece : model.pieces) {
    const auto id = static_cast<std::int32_t>(spellings.size());
    spellings.push_back(piece.text);
    silent.push_back(piece.kind == Kind::unknown || piece.kind == Kind::control);
    if (all.find(piece.text) >= 0)
      fail(ErrorCode::data, "{}: pieces {} and {} are both '{}'; download the file again", file.name(),
           all.find(piece.text), id, piece.text);
    all.add(piece.text, id);
    switch (piece.kind) {
      case Kind::normal:
        bpe.pieces.add(piece.text, id);
        break;
      case Kind::unknown:
        bpe.unknown = id;
        break;
      case Kind::control:
        control.push_back({.content = piece.text, .token = id, .special = true});
        break;
      case Kind::user_defined:
        defined.push_back({.content = piece.text, .token = id});
        break;
      case Kind::byte:
        if (spelled_byte(piece.text) < 0)
          fail(ErrorCode::data, "{}: piece {} has type BYTE but is not spelled like one: '{}'", file.name(), id,
               piece.text);
        bpe.bytes[static_cast<std::size_t>(spelled_byte(piece.text))] = id;
        break;
      case Kind::unused:
        break;
    }
  }
  if (bpe.unknown < 0) fail(ErrorCode::data, "{}: no piece has type UNKNOWN; download the file again", file.name());
  bpe.merges = merges_of(model.pieces, bpe.pieces);

  if (!model.characters.empty()) {
    const bool squeezes = model.normalization.remove_extra_whitespaces && model.normalization.add_dummy_prefix;
    pipeline->normalizers.push_back({CharacterMap(file.name(), model.characters, AddedTokens(defined)),
                                     squeezes ? Normalizer::Local::yes : Normalizer::Local::no});
  }
  pipeline->normalizers.push_back(sentencepiece_normalizer(model.normalization));
  if (model.normalization.escape_whitespaces && joins_nothing_before(bpe.pieces, metaspace)) {
    pipeline->pre_tokenizers.push_back(split_before(std::string(metaspace)));
    pipeline->cuts_before_spaces = true;
  }
  pipeline->model = bpe_model(std::move(bpe));
  pipeline->spelled = AddedTokens(std::move(control));
  pipeline->spelled_normally = AddedTokens(std::move(defined));
  const std::vector<TokenSpelling::Step> steps = {[](std::string& token, bool) {
    if (const int byte = spelled_byte(token); byte >= 0)
      token = std::string(1, static_cast<char>(byte));
    else
      replace_all(token, metaspace, " ");
  }};
  pipeline->spelling = std::make_unique<const TokenSpelling>(spellings, silent, steps, ' ',
                                                             model.normalization.add_dummy_prefix ? 1 : 0);

  std::map<std::string, std::string> names = special_token_names(path.parent_path());
  const auto name = [&](const char* key, std::int64_t id) {
    if (id >= 0 && id < std::ssize(spellings)) names.emplace(key, spellings[static_cast<std::size_t>(id)]);
  };
  name("bos_token", model.begin);
  name("eos_token", model.end);
  name("pad_token", model.padding);
  const auto find = [&](const std::string& spelling) {
    const std::int32_t id = all.find(spelling);
    return id < 0 ? std::nullopt : std::optional(id);
  };
  pipeline->specials = special_tokens(names, find);
  const SpecialTokens& specials = pipeline->specials;
  pipeline->around = sentencepiece_template(path.parent_path(), specials.begin_of_text, specials.end_of_text);
  return pipeline;
}

}  // namespace ranvier::models
