// Reads the files of GPT-2's tokenizer and of related tokenizers:
//
//   encoder.json + vocab.bpe    OpenAI's: tokens by name, merges by line; vocab.json + merges.txt are the same
//   tokenizer.json              Hugging Face's, of a byte-level BPE that splits text as GPT-2 does
//   *.tiktoken                  tokens of up to 256 bytes in base64 with their numbers; <|endoftext|> gets the first
//                               unused number
//
// Any thread.
#pragma once

#include "models/tokenizers/bpe_vocabulary.hpp"

#include <filesystem>

namespace ranvier::models {

/// Reads `path`: a folder with one of these files (searched in that order), a tokenizer.json or a *.tiktoken. Throws
/// ErrorCode::io if none is found or readable. Throws ErrorCode::data if it is damaged or splits text differently
/// from GPT-2. Messages name file and offset or token.
[[nodiscard]] BpeVocabulary read_bpe_vocabulary(const std::filesystem::path& path);

/// Whether `folder` has one of these files.
[[nodiscard]] bool has_bpe_vocabulary(const std::filesystem::path& folder);

}  // namespace ranvier::models
