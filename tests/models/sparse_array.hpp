// Arrays too large to be accessed completely: only written pages are in memory, the others read as zeros. They test
// kernels on the host for 32-bit indices: arrays have a little more than 2^32 elements, and a truncated index accesses
// the first ones, which are zero.
#pragma once

#include "runtime/base/dtype.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

#include <sys/mman.h>

namespace ranvier::models {

class SparseArray {
 public:
  SparseArray(runtime::DType dtype, std::size_t n) : dtype_(dtype), n_(n) {
    memory_ = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE_MESSAGE(memory_ != MAP_FAILED,
                    "the system has no address space for an array of " << bytes() << " bytes");
    madvise(memory_, bytes(), MADV_NOHUGEPAGE);  // a huge page would take memory completely
  }
  ~SparseArray() { munmap(memory_, bytes()); }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] std::size_t bytes() const { return n_ * size_of(dtype_); }
  [[nodiscard]] std::byte* data(std::size_t element = 0) const {
    return static_cast<std::byte*>(memory_) + element * size_of(dtype_);
  }
  [[nodiscard]] float* floats() const { return static_cast<float*>(memory_); }
  [[nodiscard]] std::int32_t* integers() const { return static_cast<std::int32_t*>(memory_); }

  /// Copies the elements of `values` to the elements starting at `first`.
  void put(std::size_t first, const TypedArray& values) const {
    std::memcpy(data(first), values.data(), values.bytes());
  }
  /// Copies them to the last elements.
  void put_last(const TypedArray& values) const { put(n_ - values.size(), values); }

  /// Whether the last `count` elements of `values` have the bits of this array's last ones.
  [[nodiscard]] bool ends_like(const TypedArray& values, std::size_t count) const {
    return std::memcmp(data(n_ - count), values.data(values.size() - count), count * size_of(dtype_)) == 0;
  }

 private:
  runtime::DType dtype_;
  std::size_t n_;
  void* memory_ = nullptr;
};

/// A small array, and one of `n` elements that ends with the same contents.
class SmallAndLarge {
 public:
  SmallAndLarge(TypedArray values, std::size_t n) : small_(std::move(values)), large_(small_.dtype(), n) {
    large_.put_last(small_);
  }

  [[nodiscard]] std::byte* operator()(bool large) { return large ? large_.data() : small_.data(); }
  [[nodiscard]] float* floats(bool large) { return reinterpret_cast<float*>((*this)(large)); }

  /// Checks that the last `count` elements of both have the same bits; 0: all of the small array.
  void check_ends(std::size_t count = 0) const {
    CHECK(large_.ends_like(small_, count > 0 ? count : small_.size()));
  }

 private:
  TypedArray small_;
  SparseArray large_;
};

}  // namespace ranvier::models
