// The tokens of one file, or of all files of a folder one after another in the order of their paths. Any thread.
#pragma once

#include "models/text/token_file.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ranvier::models {

class TokenSequence {
 public:
  /// A folder is searched with its subfolders, hidden files left out. `llmc` and `uint16` take its .bin files;
  /// otherwise its text files are taken: those without a zero byte in their first 4096. Throws as TokenFile
  /// does, and ErrorCode::data for a folder without such files.
  TokenSequence(const std::filesystem::path& path, TokenFormat format);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::vector<TokenFile>& files() const noexcept { return files_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return starts_.back(); }

  /// Throws ErrorCode::data if a token is not below `vocab_size`. Looks at all tokens of up to 1 GiB of data,
  /// in larger data at as many, in blocks spread evenly; read() looks at the rest.
  void check_vocabulary(int vocab_size) const;

  /// Copies `count` tokens from `first` on; the range lies inside the sequence. Throws ErrorCode::data if one
  /// is not below `vocab_size`.
  void read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const;

 private:
  /// Calls f(file, first, count) for the parts of the files that the range covers.
  template <typename F>
  void for_each_part(std::int64_t first, std::int64_t count, F&& f) const;

  std::filesystem::path path_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // of each file, and the end of the last
};

}  // namespace ranvier::models
