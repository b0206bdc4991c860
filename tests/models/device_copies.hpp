// Host arrays as a device accesses them: directly on a CPU, as copies in its memory on a GPU.
//
//   DeviceCopies at(stream);
//   gelu_forward(stream, dtype, at(y), at(x), n);
//   at.fetch();  // y is written, on any device
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

#include <deque>

namespace ranvier::models {

class DeviceCopies {
 public:
  explicit DeviceCopies(runtime::StreamView stream)
      : stream_(stream), copies_arrays_(stream.device().kind() == runtime::DeviceKind::cuda) {}

  /// Const arrays are not copied back. A host array has one copy, with the host's contents at its first use.
  template <typename T>
  [[nodiscard]] T* operator()(T* array, std::size_t n) {
    if (!copies_arrays_ || n == 0) return array;
    return reinterpret_cast<T*>(copy_of(array, n * sizeof(T), std::is_const_v<T>));
  }
  template <typename Vector>
  [[nodiscard]] auto* operator()(Vector& array) {
    return (*this)(array.data(), array.size());
  }
  [[nodiscard]] std::byte* operator()(TypedArray& array, std::size_t element = 0) {
    return (*this)(array.data(), array.bytes()) + element * runtime::size_of(array.dtype());
  }
  [[nodiscard]] const std::byte* operator()(const TypedArray& array, std::size_t element = 0) {
    return (*this)(array.data(), array.bytes()) + element * runtime::size_of(array.dtype());
  }
  [[nodiscard]] float* floats(TypedArray& array) { return reinterpret_cast<float*>((*this)(array)); }

  /// Workspace until fetch(). Its contents must not matter.
  [[nodiscard]] std::byte* scratch(std::size_t bytes) {
    return (*this)(scratch_.emplace_back(bytes, std::byte{0xff}));
  }

  /// Waits for the stream. Then the host's arrays have the device's contents, and later uses copy them again.
  void fetch() {
    for (const auto& [host, copy] : copies_)
      if (copy.writes) runtime::copy(stream_, host, copy.memory.data(), copy.memory.bytes());
    stream_.synchronize();
    copies_.clear();
    scratch_.clear();
  }

 private:
  struct Copy {
    runtime::Buffer memory;
    bool writes = false;
  };

  std::byte* copy_of(const void* array, std::size_t bytes, bool reads_only) {
    auto [place, is_new] = copies_.try_emplace(const_cast<void*>(array));
    if (is_new) {
      place->second.memory = stream_.device().allocate(bytes, runtime::MemorySpace::device);
      runtime::copy(stream_, place->second.memory.data(), array, bytes);
      stream_.synchronize();  // the host may change its array
    }
    place->second.writes = place->second.writes || !reads_only;
    return place->second.memory.data();
  }

  runtime::StreamView stream_;
  const bool copies_arrays_;
  std::deque<std::vector<std::byte>> scratch_;
  std::map<void*, Copy> copies_;
};

}  // namespace ranvier::models
