// Tokens of a file, or of all files of a folder, concatenated in the order of their paths. Any thread.
#pragma once

#include "models/text/data_files.hpp"
#include "models/text/token_file.hpp"
#include "models/tokenizers/document_frame.hpp"
#include "models/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::models {

/// Options for tokenizing text.
struct TextTokens {
  const Tokenizer* tokenizer = nullptr;  ///< null: each byte is a token
  int threads = 1;                       ///< threads for encoding on opening
  SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer;
  bool framed = true;  ///< false: the caller adds tokens around documents

  [[nodiscard]] DocumentFrame frame() const {
    return tokenizer != nullptr && framed ? DocumentFrame(*tokenizer, specials) : DocumentFrame();
  }
};

class TokenSequence {
 public:
  /// Opens the files of data_files_at(). Encodes text into memory, with the tokenizer's template around documents,
  /// and the end of text between them unless the template has it. Without a tokenizer, reads compressed text and JSON
  /// lines into memory. Throws like data_files_at(), TokenFile and DocumentReader, and ErrorCode::data for too much
  /// text for memory.
  TokenSequence(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::vector<TokenFile>& files() const noexcept { return files_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return starts_.back(); }
  /// Number of documents in the files; 0: unknown.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Skipped files of a folder.
  [[nodiscard]] const std::vector<SkippedFile>& left_out() const noexcept { return left_out_; }
  /// Remarks for the user: assumed formats, bytes that are not text.
  [[nodiscard]] const std::vector<std::string>& remarks() const noexcept { return remarks_; }

  /// Finds the starts of documents as TokenFile::document_begins() does; needs 8 bytes each. `end`: end-of-document
  /// token of files without document bounds. Throws ErrorCode::data if such a file lacks it, or it is none.
  void find_documents(std::optional<std::int32_t> end, int vocab_size);
  /// Starts of documents among `count` tokens starting at `first`, in order. Call after find_documents().
  [[nodiscard]] std::span<const std::int64_t> document_begins(std::int64_t first, std::int64_t count) const;

  /// Throws ErrorCode::data if a token is not below `vocab_size`. Checks at most 1 GiB: larger data in evenly spaced
  /// blocks. read() checks the rest.
  void check_vocabulary(int vocab_size) const;

  /// Advises the system to prefetch these tokens.
  void will_read(std::int64_t first, std::int64_t count) const;

  /// Copies `count` tokens starting at `first`; the range must be inside the sequence. Throws ErrorCode::data if one
  /// is not below `vocab_size`.
  void read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const;

 private:
  void read_text(const std::vector<DataFile>& files, const TextReading& reading, const TextTokens& text);
  /// Calls f(file, first, count) for the parts of the files in the range.
  template <typename F>
  void for_each_part(std::int64_t first, std::int64_t count, F&& f) const;

  std::filesystem::path path_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // start of each file, and the end of the last
  std::int64_t documents_ = 0;
  std::vector<SkippedFile> left_out_;
  std::vector<std::string> remarks_;
  std::vector<std::int64_t> begins_;  // starts of documents
  TextReading reading_;
};

}  // namespace ranvier::models
