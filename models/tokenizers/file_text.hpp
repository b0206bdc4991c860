#pragma once

#include "runtime/files/memory_map.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Complete tokenizer file as text. Throws ErrorCode::io if it cannot be read, ErrorCode::data if it is too large.
class FileText {
 public:
  explicit FileText(const std::filesystem::path& path);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  }

 private:
  std::string name_;
  runtime::MemoryMap map_;
};

}  // namespace ranvier::models
