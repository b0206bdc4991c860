#include "models/tokenizers/tokenizer_files.hpp"

#include "models/tokenizers/bpe_files.hpp"
#include "models/tokenizers/sentencepiece_model.hpp"
#include "models/tokenizers/tokenizer_json.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::array names = {"tokenizer.json",
                              "encoder.json",
                              "vocab.bpe",
                              "vocab.json",
                              "merges.txt",
                              "tokenizer.model",
                              "vocab.txt",
                              "tokenizer_config.json",
                              "special_tokens_map.json",
                              "added_tokens.json",
                              "chat_template.jinja",
                              "chat_template.json"};

/// tokenizer.model, tokenizer.model.v3
bool is_sentencepiece(const fs::path& path) {
  return path.filename().string().find(".model") != std::string::npos && path.extension() != ".json";
}

}  // namespace

Tokenizer read_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (is_file(path / "tokenizer.json")) return read_tokenizer(path / "tokenizer.json");
    if (has_bpe_files(path)) return Tokenizer(read_bpe_files(path));
    for (const char* name : {"tokenizer.model", "vocab.txt"})
      if (is_file(path / name)) return read_tokenizer(path / name);
    fail(ErrorCode::io,
         "{}: no tokenizer found; use a folder with tokenizer.json, encoder.json and vocab.bpe, tokenizer.model, "
         "vocab.txt, or one .tiktoken file",
         path.string());
  }
  if (is_sentencepiece(path)) return Tokenizer(read_sentencepiece_model(path));
  if (path.extension() == ".txt") return Tokenizer(read_vocab_txt(path));
  if (path.extension() == ".tiktoken") return Tokenizer(read_bpe_files(path));
  if (path.extension() != ".json" && !is_file(path))
    fail(ErrorCode::io, "{}: not found; use a folder with encoder.json and vocab.bpe", path.string());
  const JsonFile file(path);
  return Tokenizer(is_of_gpt2s_kind(file) ? read_gpt2_json(file) : read_tokenizer_json(file));
}

bool has_tokenizer(const fs::path& folder) {
  return is_file(folder / "tokenizer.json") || has_bpe_files(folder) || is_file(folder / "tokenizer.model") ||
         is_file(folder / "vocab.txt");
}

std::map<std::string, fs::path> tokenizer_files(const fs::path& path) {
  std::error_code ignored;
  std::map<std::string, fs::path> files;
  fs::path folder = path;
  if (!fs::is_directory(path, ignored)) {
    const std::string extension = path.extension();
    const char* const name = is_sentencepiece(path) ? "tokenizer.model"
                             : extension == ".txt"  ? "vocab.txt"
                                                    : "tokenizer.json";
    files[extension == ".tiktoken" ? path.filename().string() : name] = path;
    folder = path.parent_path();  // for files that define special tokens
    for (const char* beside : {"tokenizer_config.json", "special_tokens_map.json"})
      if (extension != ".tiktoken" && is_file(folder / beside)) files[beside] = folder / beside;
    return files;
  }
  const std::map<std::string_view, const char*> renamed = {{"encoder.json", "vocab.json"},
                                                           {"vocab.bpe", "merges.txt"}};
  for (const char* name : names) {
    const auto known = renamed.find(name);
    if (is_file(folder / name)) files[known != renamed.end() ? known->second : name] = folder / name;
  }
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (entry->path().extension() == ".tiktoken") files[entry->path().filename().string()] = entry->path();
  return files;
}

bool is_tokenizer_file(const std::string& name) {
  return name.ends_with(".tiktoken") || std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace ranvier::models
