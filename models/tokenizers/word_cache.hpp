// Cache of words and their tokens, in a table of fixed size; a new word may replace an old one. Common words cost one
// lookup, without allocation. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace ranvier::models {

class WordCache {
 public:
  WordCache() : known_(known_words) {}

  /// Appends the tokens of a non-empty word: cached ones, or those that encode(word, to) appends.
  template <typename Encode>
  void append(std::string_view word, std::vector<std::int32_t>& to, Encode&& encode) {
    if (word.size() > KnownWord::longest) return encode(word, to);
    KnownWord& known = known_[hash_of(word) % known_words];
    if (known.length == word.size() && std::memcmp(known.word, word.data(), word.size()) == 0) {
      for (std::uint8_t i = 0; i < known.count; ++i) to.push_back(known.tokens[i]);
      return;
    }
    const std::size_t first = to.size();
    encode(word, to);
    const std::size_t count = to.size() - first;
    if (count > KnownWord::most) return;
    known.length = static_cast<std::uint8_t>(word.size());
    known.count = static_cast<std::uint8_t>(count);
    std::memcpy(known.word, word.data(), word.size());
    std::copy(to.begin() + static_cast<std::ptrdiff_t>(first), to.end(), known.tokens);
  }

 private:
  static constexpr std::size_t known_words = std::size_t{1}
                                             << 15;  // 2 MiB: fits a core's cache together with other data

  struct KnownWord {
    static constexpr std::size_t longest = 38, most = 6;
    std::uint8_t length = 0;  // 0: empty
    std::uint8_t count = 0;
    char word[longest];
    std::int32_t tokens[most];
  };

  static std::uint64_t load(const char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
  }
  static std::uint64_t hash_of(std::string_view word) {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
    const char* const data = word.data();
    const std::size_t size = word.size();
    std::uint64_t hash = size * odd;
    const auto mix = [&hash](std::uint64_t bits) {
      hash = (hash ^ bits) * odd;
      hash ^= hash >> 29;
    };
    if (size >= 8) {
      for (std::size_t i = 0; i + 8 < size; i += 8) mix(load(data + i, 8));
      mix(load(data + size - 8, 8));
    } else if (size >= 4) {
      mix(load(data, 4) | load(data + size - 4, 4) << 32);
    } else {
      mix(load(data, 1) | load(data + size / 2, 1) << 8 | load(data + size - 1, 1) << 16);
    }
    return hash ^ hash >> 32;
  }

  std::vector<KnownWord> known_;
};

}  // namespace ranvier::models
