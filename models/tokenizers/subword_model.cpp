#include "models/tokenizers/subword_model.hpp"

#include "models/tokenizers/unicode.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

/// Tokens of characters: a table for those below U+10000, as most are.
class CharacterTokens {
 public:
  explicit CharacterTokens(const PieceTable& pieces) : basic_(0x10000, -1) {
    for (const auto& [piece, token] : pieces.all()) {
      if (piece.empty() || character_bytes(piece, 0) != piece.size()) continue;
      const char32_t c = character_at(piece, 0);
      if (c < 0x10000)
        basic_[c] = token;
      else
        others_[c] = token;
    }
  }
  [[nodiscard]] std::int32_t find(char32_t c) const {
    if (c < 0x10000) return basic_[c];
    const auto found = others_.find(c);
    return found == others_.end() ? -1 : found->second;
  }

 private:
  std::vector<std::int32_t> basic_;
  std::unordered_map<char32_t, std::int32_t> others_;
};

class Bpe final : public SubwordModel {
 public:
  explicit Bpe(BpeModel model) : model_(std::move(model)), characters_(model_.pieces) {
    if (!model_.of_bytes) return;
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      model_.bytes[static_cast<std::size_t>(byte)] = model_.pieces.find({&one, 1});
    }
  }
  [[nodiscard]] std::unique_ptr<SubwordModel::Encoder> encoder() const override {
    return std::make_unique<Encoder>(*this);
  }

 private:
  class Encoder final : public SubwordModel::Encoder {
   public:
    explicit Encoder(const Bpe& bpe) : bpe_(bpe), merger_(bpe.model_.merges) {}

    void encode(std::string_view word, std::vector<std::int32_t>& to) override {
      known_.append(word, to, [this](std::string_view unknown, std::vector<std::int32_t>& tokens) {
        merge(unknown, tokens);
      });
    }
    void encode_stray(std::uint8_t byte, std::vector<std::int32_t>& to) override {
      const BpeModel& model = bpe_.model_;
      const std::int32_t token = model.of_bytes || model.byte_fallback ? model.bytes[byte] : -1;
      if (token >= 0)
        to.push_back(token);
      else if (model.unknown >= 0)
        to.push_back(model.unknown);
    }

   private:
    void merge(std::string_view word, std::vector<std::int32_t>& to) {
      const BpeModel& model = bpe_.model_;
      if (model.ignore_merges) {
        if (const std::int32_t token = model.pieces.find(word); token >= 0) return to.push_back(token);
      }
      unknown_waits_ = false;
      if (model.of_bytes) {
        for (const char c : word) add(model.bytes[static_cast<std::uint8_t>(c)]);
      } else {
        for_each_character(word, [&](char32_t c, std::string_view bytes) {
          const std::int32_t token = bpe_.characters_.find(c);
          if (token < 0 && model.byte_fallback && falls_back(bytes)) return;
          add(token);
        });
      }
      if (unknown_waits_) merger_.add(model.unknown);
      merger_.finish(to);
    }

    /// Delays an unknown token, because the next one may be fused with it.
    void add(std::int32_t token) {
      const BpeModel& model = bpe_.model_;
      const bool known = token >= 0;
      if (!known && model.unknown < 0) return;
      if (unknown_waits_ && (known || !model.fuse_unknown)) merger_.add(model.unknown);
      unknown_waits_ = !known;
      if (known) merger_.add(token);
    }

    bool falls_back(std::string_view bytes) {
      const auto& tokens = bpe_.model_.bytes;
      const auto token = [&](char c) { return tokens[static_cast<std::uint8_t>(c)]; };
      if (std::any_of(bytes.begin(), bytes.end(), [&](char c) { return token(c) < 0; })) return false;
      for (const char c : bytes) merger_.add(token(c));
      return true;
    }

    const Bpe& bpe_;
    WordCache known_;
    WordMerger merger_;
    bool unknown_waits_ = false;
  };

  BpeModel model_;
  CharacterTokens characters_;
};

class WordPiece final : public SubwordModel {
 public:
  explicit WordPiece(WordPieceModel model) : model_(std::move(model)) {
    // Pieces inside words are looked for without their prefix.
    for (const auto& [piece, token] : model_.pieces.all()) {
      if (piece.starts_with(model_.continuing_prefix))
        inside_.add(piece.substr(model_.continuing_prefix.size()), token);
    }
  }
  [[nodiscard]] std::unique_ptr<SubwordModel::Encoder> encoder() const override {
    return std::make_unique<Encoder>(*this);
  }

 private:
  class Encoder final : public SubwordModel::Encoder {
   public:
    explicit Encoder(const WordPiece& words) : words_(words) {}

    void encode(std::string_view word, std::vector<std::int32_t>& to) override {
      known_.append(word, to,
                    [this](std::string_view unknown, std::vector<std::int32_t>& tokens) { cut(unknown, tokens); });
    }
    void encode_stray(std::uint8_t, std::vector<std::int32_t>& to) override { to.push_back(words_.model_.unknown); }

   private:
    void cut(std::string_view word, std::vector<std::int32_t>& to) {
      const WordPieceModel& model = words_.model_;
      const auto characters = static_cast<std::size_t>(
          std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xc0) != 0x80; }));
      const std::size_t before = to.size();
      for (std::size_t begin = 0; begin < word.size() && characters <= model.longest_word;) {
        const PieceTable& pieces = begin == 0 ? model.pieces : words_.inside_;
        std::size_t end = std::min(word.size(), begin + pieces.longest());
        std::int32_t token = -1;
        for (; end > begin; --end) {
          if (end < word.size() && (word[end] & 0xc0) == 0x80) continue;
          token = pieces.find(word.substr(begin, end - begin));
          if (token >= 0) break;
        }
        if (token < 0) break;
        to.push_back(token);
        begin = end;
        if (begin == word.size()) return;
      }
      to.resize(before);
      to.push_back(model.unknown);
    }

    const WordPiece& words_;
    WordCache known_;
  };

  WordPieceModel model_;
  PieceTable inside_;
};

}  // namespace

void PieceTable::add(std::string piece, std::int32_t token) {
  longest_ = std::max(longest_, piece.size());
  tokens_.insert_or_assign(std::move(piece), token);
}

bool joins_nothing_before(const PieceTable& pieces, std::string_view mark) {
  if (pieces.find(mark) < 0) return false;
  return std::all_of(pieces.all().begin(), pieces.all().end(), [&](const auto& one) {
    const std::string& piece = one.first;
    std::size_t leading = 0;
    while (piece.compare(leading, mark.size(), mark) == 0) leading += mark.size();
    return piece.find(mark, leading) == std::string::npos;
  });
}

std::unique_ptr<const SubwordModel> bpe_model(BpeModel model) { return std::make_unique<Bpe>(std::move(model)); }

std::unique_ptr<const SubwordModel> word_piece_model(WordPieceModel model) {
  return std::make_unique<WordPiece>(std::move(model));
}

}  // namespace ranvier::models
