#include "models/tokenizers/file_text.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

namespace ranvier::models {

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

FileText::FileText(const std::filesystem::path& path) : name_(path.string()), map_(path) {
  constexpr std::size_t largest_file = std::size_t{64} << 20;
  if (map_.bytes().size() > largest_file)
    fail(ErrorCode::data, "{}: tokenizer file is too large: {} bytes, at most {}", name_, map_.bytes().size(),
         largest_file);
}

JsonFile::JsonFile(const std::filesystem::path& path)
    : FileText(path), value_(runtime::parse_json(text(), name())) {}

}  // namespace ranvier::models
