// The tokens of one file, or of all files of a folder one after another in the order of their paths. Any thread.
#pragma once

#include "models/text/data_files.hpp"
#include "models/text/document_frame.hpp"
#include "models/text/token_file.hpp"
#include "models/text/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::models {

/// What text becomes.
struct TextTokens {
  const Tokenizer* tokenizer = nullptr;  ///< null: each byte is a token
  int threads = 1;                       ///< that encode, on opening
  SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer;
  bool framed = true;  ///< false: tokens around documents are left to the caller

  [[nodiscard]] DocumentFrame frame() const {
    return tokenizer != nullptr && framed ? DocumentFrame(*tokenizer, specials) : DocumentFrame();
  }
};

class TokenSequence {
 public:
  /// The files are those that data_files_at() finds. Text for a tokenizer is encoded here, into memory. Its template
  /// stands around documents, and the end of text between them, unless the template has that. Without a tokenizer,
  /// compressed text and JSON lines are read into memory. Throws as data_files_at(), TokenFile and DocumentReader do,
  /// and ErrorCode::data for more text than is kept in memory.
  TokenSequence(const std::filesystem::path& path, const TextReading& reading, const TextTokens& text = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::vector<TokenFile>& files() const noexcept { return files_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return starts_.back(); }
  /// That the files are known to have; 0 where nothing says.
  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Of a folder.
  [[nodiscard]] const std::vector<SkippedFile>& left_out() const noexcept { return left_out_; }
  /// What people should know about the files: what they were taken for, bytes that are no text.
  [[nodiscard]] const std::vector<std::string>& remarks() const noexcept { return remarks_; }

  /// Finds out where documents begin, in each file as TokenFile::document_begins() has it, in memory: 8 bytes for each.
  /// `end`: what documents end with in files that do not say where they begin; none: there are none such, or
  /// ErrorCode::data is thrown, as for files that lack that token.
  void find_documents(std::optional<std::int32_t> end, int vocab_size);
  /// Where documents begin among `count` tokens from `first` on, in order. After find_documents().
  [[nodiscard]] std::span<const std::int64_t> document_begins(std::int64_t first, std::int64_t count) const;

  /// Throws ErrorCode::data if a token is not below `vocab_size`. Looks at all tokens of up to 1 GiB of data,
  /// in larger data at as many, in blocks spread evenly; read() looks at the rest.
  void check_vocabulary(int vocab_size) const;

  /// Says that these tokens will be read soon.
  void will_read(std::int64_t first, std::int64_t count) const;

  /// Copies `count` tokens from `first` on; the range lies inside the sequence. Throws ErrorCode::data if one
  /// is not below `vocab_size`.
  void read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const;

 private:
  void read_text(const std::vector<DataFile>& files, const TextReading& reading, const TextTokens& text);
  void hold(std::size_t bytes);
  /// Calls f(file, first, count) for the parts of the files that the range covers.
  template <typename F>
  void for_each_part(std::int64_t first, std::int64_t count, F&& f) const;

  std::filesystem::path path_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // of each file, and the end of the last
  std::int64_t documents_ = 0;
  std::size_t held_bytes_ = 0;  // of text that was read into memory or encoded there
  std::vector<SkippedFile> left_out_;
  std::vector<std::string> remarks_;
  std::vector<std::int64_t> begins_;  // of documents
  TextReading reading_;
};

}  // namespace ranvier::models
