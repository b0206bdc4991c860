#include "models/tokenizers/file_text.hpp"

#include "runtime/base/error.hpp"

namespace ranvier::models {
namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20;

}  // namespace

FileText::FileText(const std::filesystem::path& path) : name_(path.string()), map_(path) {
  if (map_.bytes().size() > largest_file)
    fail(ErrorCode::data, "{}: tokenizer file is too large: {} bytes, at most {}", name_, map_.bytes().size(),
         largest_file);
}

}  // namespace ranvier::models
