// Finds and reads the files of a tokenizer. Any thread.
//
//   tokenizer.json              Hugging Face (tokenizer_json.hpp; tokenizers equal to GPT-2's: bpe_files.hpp)
//   encoder.json + vocab.bpe    GPT-2 (bpe_files.hpp); same format as vocab.json + merges.txt
//   tokenizer.model             SentencePiece (sentencepiece_model.hpp)
//   vocab.txt                   BERT, one piece per line (tokenizer_json.hpp)
//   *.tiktoken                  GPT-2 in tiktoken's format (bpe_files.hpp)
#pragma once

#include "models/tokenizers/tokenizer.hpp"

#include <filesystem>
#include <map>
#include <string>

namespace ranvier::models {

/// Reads `path`: a folder with one of these files (searched in that order), or such a file. Throws ErrorCode::io if
/// none is found or readable, ErrorCode::data if it is damaged or unsupported. Messages name file and key, offset or
/// token.
[[nodiscard]] Tokenizer read_tokenizer(const std::filesystem::path& path);

/// Whether `folder` has one of these files.
[[nodiscard]] bool has_tokenizer(const std::filesystem::path& folder);

/// Files of the tokenizer at `path`, by the names that transformers' AutoTokenizer expects in a model folder: all
/// existing kinds, with companions (tokenizer_config.json, chat_template.jinja, …). GPT-2's encoder.json and
/// vocab.bpe become vocab.json and merges.txt.
[[nodiscard]] std::map<std::string, std::filesystem::path> tokenizer_files(const std::filesystem::path& path);

/// Whether a file with this name may belong to a tokenizer.
[[nodiscard]] bool is_tokenizer_file(const std::string& name);

}  // namespace ranvier::models
