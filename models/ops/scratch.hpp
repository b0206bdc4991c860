// Scratch memory of a thread: grows to the largest request and is kept. One thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace ranvier::models {

class Scratch {
 public:
  /// Returns at least `elements` elements, page-aligned. Contents of the previous request are lost.
  template <typename T = std::byte>
  [[nodiscard]] T* get(std::size_t elements) {
    const std::size_t bytes = elements * sizeof(T);
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, alignment)));
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::align_val_t alignment{4096};

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace ranvier::models
