// Tokens and merges as tokenizer.json writes them. All throw ErrorCode::data, naming file and key, for what is damaged
// or not read. Any thread.
#pragma once

#include "models/text/added_tokens.hpp"
#include "models/text/json_node.hpp"
#include "models/text/normalizer.hpp"
#include "models/text/subword_model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ranvier::models {

/// The tokens by name and by number.
class TokenNames {
 public:
  explicit TokenNames(const JsonNode& vocabulary);

  [[nodiscard]] std::optional<std::int32_t> find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  /// A token that is not in the vocabulary, or is and keeps its number; `id` is the value that `of` has.
  std::int32_t add(const std::string& content, std::int32_t id, const JsonNode& of);

  [[nodiscard]] const std::unordered_map<std::string, std::int32_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<std::string>& spellings() const { return spellings_; }

 private:
  void note(std::int32_t id, std::string_view spelling);

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> spellings_;  // by number; some may be of no token
};

/// Whether a key has a value that is neither empty nor zero.
[[nodiscard]] bool is_set(const JsonNode& node);

/// `of_bytes`: its pieces are bytes in the spelling of GPT-2.
[[nodiscard]] BpeModel read_bpe(const JsonNode& model, const TokenNames& tokens, bool of_bytes);
[[nodiscard]] WordPieceModel read_word_piece(const JsonNode& model, const TokenNames& tokens);

struct AddedTokenLists {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::int32_t> special;
};

/// Those of a list, whose numbers are added to `tokens`.
[[nodiscard]] AddedTokenLists read_added(const JsonNode& list, TokenNames& tokens, const Normalizers& normalizers);

}  // namespace ranvier::models
