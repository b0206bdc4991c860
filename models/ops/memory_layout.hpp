// Offsets of arrays in a memory area (a layer's saved, deferred or workspace; a thread's scratch): consecutive, each
// aligned to 64 bytes. Planning and calls use the same computation.
#pragma once

#include "runtime/base/arithmetic.hpp"

#include <cstddef>

namespace ranvier::models {

class MemoryLayout {
 public:
  /// Offset of an array of `count` elements of `size` bytes.
  std::size_t add(std::size_t count, std::size_t size) {
    const std::size_t offset = bytes_;
    bytes_ += runtime::round_up(count * size, 64);
    return offset;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace ranvier::models
