// Invariants of every tokenizer that is read.
#pragma once

#include "models/tokenizers/tokenizer_files.hpp"
#include "tests/fuzz/input.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::fuzz {

/// Encodes a text with an encoder of the tokenizer. Unless the tokenizer normalizes text, the tokens spell it.
inline std::vector<std::int32_t> encode(const models::Tokenizer& tokenizer, models::DocumentEncoder& encoder,
                                        std::string_view text, bool normalizes = false) {
  std::vector<std::int32_t> tokens;
  encoder.encode(text, true, tokens);
  std::string back;
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.size(), "a token is in the vocabulary");
    back += tokenizer.spelled(token);
  }
  require(normalizes || back == text, "the tokens spell the encoded text");
  return tokens;
}

/// Reads the tokenizer at `path`; a message may name any file of its folder.
inline void read_tokenizer(const std::filesystem::path& path, const InputFolder& folder,
                           bool may_normalize = false) {
  accepts_or_refuses(folder.path().string(), [&] {
    const models::Tokenizer tokenizer = models::read_tokenizer(path);
    for (const auto specials : {models::SpecialTokenPolicy::text, models::SpecialTokenPolicy::tokenizer}) {
      static_cast<void>(tokenizer.cuts(specials));
      const auto encoder = tokenizer.encoder(specials);
      static_cast<void>(tokenizer.decode(encode(
          tokenizer, *encoder, "The  world's aaaaaaaa 1234\t in\xff\xe4\xb8\xad \u00e9e\u0301\n<|endoftext|> <s>",
          may_normalize)));
    }
  });
}

}  // namespace ranvier::fuzz
