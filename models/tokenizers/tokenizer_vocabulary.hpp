// Reads tokens and merges from tokenizer.json. All functions throw ErrorCode::data, naming file and key, for damaged
// or unsupported parts. Any thread.
#pragma once

#include "models/tokenizers/added_tokens.hpp"
#include "models/tokenizers/json_node.hpp"
#include "models/tokenizers/normalizer.hpp"
#include "models/tokenizers/subword_model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ranvier::models {

/// Tokens by name and by number.
class TokenNames {
 public:
  explicit TokenNames(const JsonNode& vocabulary);

  [[nodiscard]] std::optional<std::int32_t> find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Adds a token; one of the vocabulary must keep its number. `id` is the value of `of`.
  std::int32_t add(const std::string& content, std::int32_t id, const JsonNode& of);

  [[nodiscard]] const std::unordered_map<std::string, std::int32_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<std::string>& spellings() const { return spellings_; }

 private:
  void note(std::int32_t id, std::string_view spelling);

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> spellings_;  // by number; some numbers may be unused
};

/// Whether a key has a value that is neither empty nor zero.
[[nodiscard]] bool is_set(const JsonNode& node);

/// `of_bytes`: pieces are bytes in GPT-2's spelling.
[[nodiscard]] BpeModel read_bpe(const JsonNode& model, const TokenNames& tokens, bool of_bytes);
[[nodiscard]] WordPieceModel read_word_piece(const JsonNode& model, const TokenNames& tokens);

struct AddedTokenLists {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::int32_t> special;
};

/// Reads a list of added tokens; adds their numbers to `tokens`.
[[nodiscard]] AddedTokenLists read_added(const JsonNode& list, TokenNames& tokens, const Normalizers& normalizers);

}  // namespace ranvier::models
