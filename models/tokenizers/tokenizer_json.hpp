// Reads Hugging Face's tokenizer.json, with special tokens from tokenizer_config.json and special_tokens_map.json
// next to it. Supports models of type BPE and WordPiece. Any thread.
#pragma once

#include "models/tokenizers/file_text.hpp"
#include "models/tokenizers/tokenizer_pipeline.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace ranvier::models {

/// Throws ErrorCode::io if a file cannot be read, ErrorCode::data, naming file and key, if it is damaged or
/// unsupported. Supported types:
///
///   normalizers      BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, StripAccents
///   pre-tokenizers   BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, Split,
///                    Whitespace, WhitespaceSplit
///   decoders         ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece
///   post-processors  only the tokens around a single text (text_template.hpp)
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_tokenizer_json(const JsonFile& file);

/// Whether the file is equivalent to GPT-2's tokenizer, with <|endoftext|> as the only special token: bpe_files.hpp
/// reads it. Throws like read_tokenizer_json().
[[nodiscard]] bool is_of_gpt2s_kind(const JsonFile& file);

/// Reads BERT's older format: vocab.txt, one piece per line, and tokenizer_config.json. Throws like
/// read_tokenizer_json().
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_vocab_txt(const std::filesystem::path& path);

/// Spellings of the special tokens in tokenizer_config.json and special_tokens_map.json: eos_token: "</s>", …
[[nodiscard]] std::map<std::string, std::string> special_token_names(const std::filesystem::path& folder);

/// Special tokens by these names. For roles that the files do not define (end of text, mask, start, end, padding),
/// tokens with usual names. `find` returns none for an unknown token.
template <typename Find>
[[nodiscard]] SpecialTokens special_tokens(const std::map<std::string, std::string>& names, Find&& find) {
  const auto named = [&](const char* key) -> std::optional<std::int32_t> {
    const auto name = names.find(key);
    return name == names.end() ? std::nullopt : find(name->second);
  };
  SpecialTokens found{named("bos_token"), named("eos_token"), named("unk_token"), named("sep_token"),
                      named("pad_token"), named("cls_token"), named("mask_token")};
  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"})
    if (!found.end_of_text) found.end_of_text = find(usual);
  // BERT and RoBERTa: a tokenizer with a mask token has the others, too.
  using Token = std::optional<std::int32_t>;
  for (const auto& [mask, begin, end, padding] :
       {std::tuple{"[MASK]", "[CLS]", "[SEP]", "[PAD]"}, {"<mask>", "<s>", "</s>", "<pad>"}}) {
    const Token usual = find(mask);
    if (!usual || found.mask.value_or(*usual) != *usual) continue;
    for (const auto& [token, name] : {std::pair<Token*, const char*>{&found.mask, mask},
                                      {&found.classifier, begin},
                                      {&found.separator, end},
                                      {&found.padding, padding}})
      if (!*token) *token = find(name);
  }
  return found;
}

}  // namespace ranvier::models
