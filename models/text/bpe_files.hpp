// The files in which GPT-2's tokenizer and its relatives are spread:
//
//   encoder.json + vocab.bpe    OpenAI's: tokens by name, merges by line; vocab.json + merges.txt are the same
//   tokenizer.json              Hugging Face's, of a byte-level BPE that splits text as GPT-2 does
//   *.tiktoken                  tokens of up to 256 bytes in base64 with their ranks; <|endoftext|> is the first
//                               number without one
//
// Any thread.
#pragma once

#include "models/text/bpe_vocabulary.hpp"

#include <filesystem>

namespace ranvier::models {

/// `path` is a folder with one of these, which are looked for in that order, or a tokenizer.json or *.tiktoken
/// itself. Throws ErrorCode::io if there is none or it cannot be read, ErrorCode::data if it is damaged, or of a
/// tokenizer that would read text in another way than GPT-2's; messages name file and offset or token.
[[nodiscard]] BpeVocabulary read_bpe_vocabulary(const std::filesystem::path& path);

/// Whether `folder` has one of these.
[[nodiscard]] bool has_bpe_vocabulary(const std::filesystem::path& folder);

}  // namespace ranvier::models
