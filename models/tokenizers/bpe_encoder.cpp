#include "models/tokenizers/bpe_encoder.hpp"

namespace ranvier::models {

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
