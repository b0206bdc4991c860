#include "models/tokenizers/bpe_vocabulary.hpp"

#include "runtime/base/error.hpp"

#include <unordered_map>

namespace ranvier::models {

BpeVocabulary::BpeVocabulary(const std::string& origin, std::span<const std::string> tokens,
                             std::int32_t end_of_text, std::span<const Merge> merges)
    : origin_(origin), merges_(merges.size()), end_of_text_(end_of_text) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  expect(end_of_text >= 0 && end_of_text < count, "{}: end-of-text token is out of range: {} of {}", origin,
         end_of_text, count);
  std::unordered_map<std::string_view, std::int32_t> ids;
  begins_.reserve(tokens.size() + 1);
  for (std::int32_t id = 0; id < count; ++id) {
    const std::string& bytes = tokens[static_cast<std::size_t>(id)];
    if (bytes.empty()) fail(ErrorCode::data, "{}: token {} is empty; download the file again", origin, id);
    begins_.push_back(bytes_.size());
    bytes_ += bytes;
    if (id == end_of_text) continue;
    const auto [found, is_new] = ids.emplace(bytes, id);
    if (!is_new)
      fail(ErrorCode::data, "{}: tokens {} and {} have the same bytes; download the file again", origin,
           found->second, id);
  }
  begins_.push_back(bytes_.size());
  for (int byte = 0; byte < 256; ++byte) {
    const char spelling = static_cast<char>(byte);
    const auto found = ids.find({&spelling, 1});
    if (found == ids.end())
      fail(ErrorCode::data, "{}: byte {} is not a token; use a byte-level encoding such as GPT-2's", origin, byte);
    byte_tokens_[static_cast<std::size_t>(byte)] = found->second;
  }

  for (const Merge& merge : merges) {
    for (const std::int32_t token : {merge.left, merge.right, merge.token})
      expect(token >= 0 && token < count, "{}: merged token is out of range: {} of {}", origin, token, count);
    merges_.add(merge.left, merge.right, {static_cast<std::uint32_t>(merge.rank), merge.token});
  }
}

void BpeVocabulary::decode(std::span<const std::int32_t> tokens, std::string& to) const {
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= size())
      fail(ErrorCode::data, "token {} is not one of the {} tokens of {}; use the tokenizer that wrote the tokens",
           token, size(), origin_);
    to += bytes_of(token);
  }
}

BpeEncoder::BpeEncoder(const BpeVocabulary& vocabulary, SpecialTokenPolicy specials)
    : vocabulary_(vocabulary), specials_(specials), merger_(vocabulary.merges()) {}

void BpeEncoder::encode(std::string_view text, std::vector<std::int32_t>& to) {
  while (specials_ == SpecialTokenPolicy::tokenizer) {
    const std::size_t at = text.find(end_of_text_spelling);
    if (at == std::string_view::npos) break;
    encode_ordinary(text.substr(0, at), to);
    to.push_back(vocabulary_.end_of_text());
    text.remove_prefix(at + end_of_text_spelling.size());
  }
  encode_ordinary(text, to);
}

void BpeEncoder::encode_ordinary(std::string_view text, std::vector<std::int32_t>& to) {
  splitter_.start(text);
  for (std::string_view word = splitter_.next(); !word.empty(); word = splitter_.next())
    known_.append(word, to, [this](std::string_view unknown, std::vector<std::int32_t>& tokens) {
      for (const char byte : unknown) merger_.add(vocabulary_.token_of(static_cast<std::uint8_t>(byte)));
      merger_.finish(tokens);
    });
}

}  // namespace ranvier::models
