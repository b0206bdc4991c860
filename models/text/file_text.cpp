#include "models/text/file_text.hpp"

#include "runtime/error.hpp"

namespace ranvier::models {
namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20;

}  // namespace

FileText::FileText(const std::filesystem::path& path) : name_(path.string()), map_(path) {
  if (map_.bytes().size() > largest_file)
    fail(ErrorCode::data, "{}: {} bytes: more than {} are no tokenizer", name_, map_.bytes().size(), largest_file);
}

}  // namespace ranvier::models
