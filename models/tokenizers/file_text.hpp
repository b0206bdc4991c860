// Files of tokenizers as text and JSON. Any thread.
#pragma once

#include "models/tokenizers/json_node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"
#include "runtime/files/memory_map.hpp"

#include <boost/json/value.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ranvier::models {

[[nodiscard]] inline bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

/// Complete tokenizer file as text. Throws ErrorCode::io if it cannot be read, ErrorCode::data if it is too large.
class FileText {
 public:
  explicit FileText(const std::filesystem::path& path) : name_(path.string()), map_(path) {
    constexpr std::size_t largest_file = std::size_t{64} << 20;
    if (text().size() > largest_file)
      fail(ErrorCode::data, "{}: tokenizer file is too large: {} bytes, at most {}", name_, text().size(),
           largest_file);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::filesystem::path folder() const { return std::filesystem::path(name_).parent_path(); }
  [[nodiscard]] std::string_view text() const noexcept { return map_.text(); }

 private:
  std::string name_;
  runtime::MemoryMap map_;
};

/// Parsed tokenizer file. Throws like FileText, and ErrorCode::data if it is not JSON.
class JsonFile : public FileText {
 public:
  explicit JsonFile(const std::filesystem::path& path)
      : FileText(path), value_(runtime::parse_json(text(), name())) {}

  /// Valid as long as the file.
  [[nodiscard]] JsonNode root() const { return {name(), "", &value_}; }

 private:
  boost::json::value value_;
};

/// Calls f(line, number from 1, offset) for every line.
template <typename F>
void for_each_line(std::string_view text, F&& f) {
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line, number, begin);
    begin = end + 1;
  }
}

}  // namespace ranvier::models
