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

/// Encodes a text with an encoder of the tokenizer, whose tokens then spell the text.
inline void round_trip(const models::Tokenizer& tokenizer, models::DocumentEncoder& encoder,
                       std::string_view text) {
  std::vector<std::int32_t> tokens;
  encoder.encode(text, true, tokens);
  std::string back;
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.size(), "a token is in the vocabulary");
    back += tokenizer.spelled(token);
  }
  require(back == text, "the tokens spell the encoded text");
}

/// Reads the tokenizer at `path`; a message may name any file of its folder.
inline void read_tokenizer(const std::filesystem::path& path, const InputFolder& folder) {
  accepts_or_refuses(folder.path().string(), [&] {
    const models::Tokenizer tokenizer = models::read_tokenizer(path);
    const auto encoder = tokenizer.encoder(models::SpecialTokenPolicy::tokenizer);
    round_trip(tokenizer, *encoder, "the world's aaaaaaaa 1234  in\xff\xe4\xb8\xad<|endoftext|>");
  });
}

/// The same for any kind of tokenizer; some normalize the text.
inline void read_any_tokenizer(const std::filesystem::path& path, const InputFolder& folder) {
  accepts_or_refuses(folder.path().string(), [&] {
    const models::Tokenizer tokenizer = models::read_tokenizer(path);
    for (const auto specials : {models::SpecialTokenPolicy::text, models::SpecialTokenPolicy::tokenizer}) {
      static_cast<void>(tokenizer.cuts(specials));
      std::vector<std::int32_t> tokens;
      tokenizer.encoder(specials)->encode(
          "The  world's aaaaaaaa 1234\t in\xff\xe4\xb8\xad \u00e9e\u0301\n<|endoftext|> <s>", true, tokens);
      for (const std::int32_t token : tokens)
        require(token >= 0 && token < tokenizer.size(), "a token is in the vocabulary");
      static_cast<void>(tokenizer.decode(tokens));
    }
  });
}

}  // namespace ranvier::fuzz
