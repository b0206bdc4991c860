// Hugging Face's tokenizer.json: a tokenizer in parts, with tokenizer_config.json and special_tokens_map.json beside
// it, which name special tokens. Read are models of type BPE and WordPiece and
//
//   normalizers       BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, StripAccents
//   pre-tokenizers    BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, Split,
//                     Whitespace, WhitespaceSplit
//   decoders          ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece
//
// Post-processors are for pairs and single texts, not for training data: of them only what they put before a single
// text is read (text_beginning.hpp). Any thread.
#pragma once

#include "models/text/tokenizer_pipeline.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace ranvier::models {

/// Throws ErrorCode::io if a file cannot be read, ErrorCode::data, naming file and key, if it is damaged or has what is
/// not read.
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_tokenizer_json(const std::filesystem::path& path);

/// Whether the file describes what GPT-2's tokenizer does, with <|endoftext|> as the only token beside those of text:
/// bpe_files.hpp reads it. Throws likewise.
[[nodiscard]] bool is_of_gpt2s_kind(const std::filesystem::path& path);

/// BERT's older files: vocab.txt, a piece a line, and what tokenizer_config.json says beside it. Throws likewise.
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_vocab_txt(const std::filesystem::path& path);

/// What tokenizer_config.json and special_tokens_map.json in a folder call the special tokens: eos_token: "</s>", …
[[nodiscard]] std::map<std::string, std::string> special_token_names(const std::filesystem::path& folder);

/// Those, and where they do not say what ends a text, or what masks, begins, ends and fills up one, the tokens of usual
/// names, looked up by `find`, which answers none for what is no token.
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
  // BERT's and RoBERTa's: who has the mask has the others.
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
