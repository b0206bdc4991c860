// Where the arrays of a layer lie in one of its areas (saved, deferred, workspace): one after another, each
// at a multiple of 64 bytes. Computed alike when memory is planned and when a call uses it.
#pragma once

#include <cstddef>

namespace ranvier::models {

class MemoryLayout {
 public:
  /// The offset of an array of `count` elements of `size` bytes.
  std::size_t add(std::size_t count, std::size_t size) {
    const std::size_t offset = bytes_;
    bytes_ += (count * size + 63) / 64 * 64;
    return offset;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace ranvier::models
