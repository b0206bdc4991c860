// Any bytes as text: characters, words, tokens and back.
#include "models/tokenizers/unicode.hpp"
#include "models/tokenizers/word_splitter.hpp"
#include "tests/fuzz/tokenizer.hpp"
#include "tests/models/small_tokenizer.hpp"

#include <algorithm>
#include <memory>

using namespace ranvier;

namespace {

using Words = std::vector<std::string>;

struct Encoders {
  fuzz::InputFolder folder;
  models::Tokenizer tokenizer = [this] {
    const tests::SmallTokenizer small;
    folder.write("encoder.json", small.encoder_json());
    folder.write("vocab.bpe", small.vocab_bpe());
    return models::read_tokenizer(folder.path());
  }();
  std::unique_ptr<models::DocumentEncoder> plain = tokenizer.encoder(models::SpecialTokenPolicy::text);
  std::unique_ptr<models::DocumentEncoder> special = tokenizer.encoder(models::SpecialTokenPolicy::tokenizer);
  models::WordSplitter splitter;

  Words words(std::string_view text) {
    Words found;
    splitter.start(text);
    for (auto word = splitter.next(); !word.empty(); word = splitter.next()) found.emplace_back(word);
    return found;
  }
};

/// Whether every character has one byte.
bool check_characters(std::string_view text) {
  bool narrow = true;
  std::size_t stray = text.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = models::character_bytes(text, at);
    fuzz::require(bytes <= 4 && bytes <= text.size() - at, "a character is inside the text");
    if (bytes == 0) {
      stray = std::min(stray, at++);
      continue;
    }
    std::string again;
    models::append_utf8(models::character_at(text, at), again);
    fuzz::require(again == text.substr(at, bytes), "a character encodes to the bytes that it was read from");
    narrow = narrow && bytes == 1;
    at += bytes;
  }
  fuzz::require(models::first_stray_byte(text, 0) == stray,
                "the first stray byte is the first byte outside a character");
  return narrow;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Encoders encoders;
  const std::string_view text = fuzz::view(data, size);
  const Words words = encoders.words(text);
  std::string whole;
  for (const auto& word : words) whole += word;
  fuzz::require(whole == text, "words concatenate to the text");
  if (check_characters(text))
    fuzz::require(words == tests::SmallTokenizer::words(std::string(text), {}),
                  "words equal the words of a plain reading");
  const std::size_t cut = models::last_cut(text, size / 2);
  Words both = encoders.words(text.substr(0, cut));
  for (auto& word : encoders.words(text.substr(cut))) both.push_back(word);
  fuzz::require(both == words, "splitting the text changes no word");
  const auto tokens = fuzz::encode(encoders.tokenizer, *encoders.plain, text);
  fuzz::require(encoders.tokenizer.decode(tokens) == text, "decoding gives the encoded text");
  static_cast<void>(fuzz::encode(encoders.tokenizer, *encoders.special, text));
  return 0;
}
