// Reads the files of GPT-2's tokenizer and of related tokenizers:
//
//   encoder.json + vocab.bpe    OpenAI's: tokens by name, merges by line; vocab.json + merges.txt are the same
//   tokenizer.json              Hugging Face's, of a byte-level BPE that splits text as GPT-2 does
//   *.tiktoken                  tokens of up to 256 bytes in base64 with their numbers; <|endoftext|> gets the first
//                               unused number
//
// All functions but has_bpe_files() throw ErrorCode::io for a file that cannot be read, and ErrorCode::data if it is
// damaged or splits text differently from GPT-2. Messages name file and offset or token. Any thread.
#pragma once

#include "models/tokenizers/file_text.hpp"
#include "models/tokenizers/tokenizer_pipeline.hpp"

#include <filesystem>
#include <memory>
#include <string_view>

namespace ranvier::models {

/// Spelling of the token between documents.
inline constexpr std::string_view end_of_text_spelling = "<|endoftext|>";

/// Reads a *.tiktoken, or a folder: encoder.json and vocab.bpe if it has them, otherwise its only *.tiktoken.
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_bpe_files(const std::filesystem::path& path);

/// Whether `folder` has such files.
[[nodiscard]] bool has_bpe_files(const std::filesystem::path& folder);

/// Reads a tokenizer.json that is_of_gpt2s_kind().
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_gpt2_json(const JsonFile& file);

}  // namespace ranvier::models
