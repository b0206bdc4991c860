// Checks an operation's declared cost: its call declares arrays of exactly its sizes, as read or written, and the check
// tests whether it reads and writes them.
//
//   CostedRun(DType::bf16).check(WorkKind::activation, [&](StreamView stream, CostedRun& run) {
//     gelu_forward(stream, DType::bf16, run.writes(n), run.reads(n), n);
//   });
#pragma once

#include "runtime/base/dtype.hpp"
#include "tests/doubles/recording_device.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

class CostedRun {
 public:
  using DType = runtime::DType;

  /// Pointer of any type to a declared array, or null.
  class Address {
   public:
    explicit Address(void* memory = nullptr) noexcept : memory_(memory) {}
    template <typename T>
    operator T*() const noexcept {
      return static_cast<T*>(memory_);
    }

   private:
    void* memory_;
  };

  explicit CostedRun(DType dtype) : dtype_(dtype) {}

  /// Arrays of n elements, of the run's type by default. Every call of the operation must declare the same ones, in the
  /// same order.
  Address reads(std::size_t n) { return reads(n, dtype_); }
  Address reads(std::size_t n, DType dtype) { return declare(true, false, n * size_of(dtype), values(dtype, n)); }
  Address writes(std::size_t n) { return writes(n, dtype_); }
  Address writes(std::size_t n, DType dtype) { return writes_bytes(n * size_of(dtype), size_of(dtype)); }
  Address changes(std::size_t n) { return changes(n, dtype_); }
  Address changes(std::size_t n, DType dtype) { return declare(true, true, n * size_of(dtype), values(dtype, n)); }
  Address writes_bytes(std::size_t bytes, std::size_t width = 1) {
    return declare(false, true, bytes, std::vector<std::byte>(bytes, sentinel), width);
  }
  /// An array of `stored` elements, n of which are read.
  Address reads_of(std::size_t stored, std::size_t n) {
    return declare(true, false, n * size_of(dtype_), values(dtype_, stored));
  }
  /// Tokens, positions, indices; another order of them must change the result.
  Address reads_integers(std::vector<std::int32_t> integers) {
    const std::vector<std::byte> first = bytes_of(integers);
    std::rotate(integers.begin(), integers.begin() + 1, integers.end());
    return declare(true, false, first.size(), first, 1, bytes_of(integers));
  }
  /// i · step mod `below`.
  Address reads_integers(std::size_t n, std::size_t below, std::size_t step = 1) {
    std::vector<std::int32_t> integers(n);
    for (std::size_t i = 0; i < n; ++i) integers[i] = static_cast<std::int32_t>(i * step % below);
    return reads_integers(std::move(integers));
  }
  Address reads_bytes(std::size_t bytes) {
    std::vector<std::byte> first(bytes), others(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      first[i] = static_cast<std::byte>(i * 7 % 5);
      others[i] = static_cast<std::byte>(i * 7 % 5 + 1);
    }
    return declare(true, false, bytes, first, 1, others);
  }
  /// Costs nothing.
  Address workspace(std::size_t bytes) { return declare(false, false, bytes, std::vector<std::byte>(bytes)); }

  using Operation = std::function<void(runtime::StreamView, CostedRun&)>;
  /// Checks that the total cost of all work equals the arrays' sizes; returns the last cost. Every read array must
  /// affect the result, every written one must be written completely, and others must not change.
  runtime::WorkCost check(runtime::WorkKind kind, const Operation& operation) {
    const auto results = run(operation);
    REQUIRE(!device_.work().empty());
    double bytes = 0, expected = 0;
    for (const auto& work : device_.work()) bytes += work.cost.bytes;
    for (const Array& array : arrays_)
      expected += static_cast<double>(array.counted * ((array.read ? 1u : 0u) + (array.written ? 1u : 0u)));
    CHECK(bytes == expected);
    const runtime::WorkCost cost = device_.work().back().cost;
    CHECK(to_string(cost.kind) == to_string(kind));
    for (std::size_t id = 0; id < arrays_.size(); ++id) {
      CAPTURE(id);
      const Array& array = arrays_[id];
      if (array.scratch()) continue;
      if (!array.written) CHECK(results[id] == array.first);
      if (array.written && !array.read) CHECK(untouched(results[id], array.width) == 0);
      if (array.written && array.read) CHECK(results[id] != array.first);
    }
    for (std::size_t id = 0; id < arrays_.size(); ++id) {
      if (!arrays_[id].read) continue;
      CAPTURE(id);
      std::swap(arrays_[id].first, arrays_[id].others);
      const auto changed = run(operation);
      std::swap(arrays_[id].first, arrays_[id].others);
      bool differs = false;
      for (std::size_t other = 0; other < arrays_.size(); ++other)
        differs = differs || (arrays_[other].written && changed[other] != results[other]);
      CHECK(differs);
    }
    return cost;
  }

 private:
  static constexpr std::byte sentinel{0xa5};

  struct Array {
    bool read, written;
    std::size_t counted;  ///< bytes
    std::size_t width;    ///< bytes of an element
    std::vector<std::byte> first, others, now;

    [[nodiscard]] bool scratch() const { return !read && !written; }
  };

  /// The next array, created if this is the first call of the operation. `others`: other contents, by default the
  /// first ones in reverse order.
  Address declare(bool read, bool written, std::size_t counted, const std::vector<std::byte>& first,
                  std::size_t width = 1, std::vector<std::byte> others = {}) {
    if (next_ == arrays_.size()) {
      if (others.empty()) {
        others.assign(first.rbegin(), first.rend());
        for (std::size_t i = 0; i + size_of(dtype_) <= others.size(); i += size_of(dtype_))
          std::reverse(others.begin() + static_cast<std::ptrdiff_t>(i),
                       others.begin() + static_cast<std::ptrdiff_t>(i + size_of(dtype_)));
      }
      arrays_.push_back({read, written, counted, width, first, others, first});
    }
    return Address(arrays_[next_++].now.data());
  }

  std::vector<std::byte> values(DType dtype, std::size_t n) const {
    const models::TypedArray drawn(dtype, n, next_ + 1);
    return {drawn.data(), drawn.data() + drawn.bytes()};
  }

  static std::vector<std::byte> bytes_of(const std::vector<std::int32_t>& integers) {
    std::vector<std::byte> bytes(integers.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), integers.data(), bytes.size());
    return bytes;
  }

  /// Elements that did not change.
  static std::size_t untouched(const std::vector<std::byte>& values, std::size_t width) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < values.size(); i += width)
      count += std::all_of(values.begin() + static_cast<std::ptrdiff_t>(i),
                           values.begin() + static_cast<std::ptrdiff_t>(i + width),
                           [](std::byte value) { return value == sentinel; });
    return count;
  }

  /// Contents of the arrays after the operation.
  std::vector<std::vector<std::byte>> run(const Operation& operation) {
    for (Array& array : arrays_) std::copy(array.first.begin(), array.first.end(), array.now.begin());
    device_.clear();
    next_ = 0;
    operation(*stream_, *this);
    stream_->synchronize();
    std::vector<std::vector<std::byte>> after;
    for (const Array& array : arrays_) after.push_back(array.now);
    return after;
  }

  DType dtype_;
  RecordingDevice device_;
  std::unique_ptr<runtime::Stream> stream_ = device_.make_stream("operations", runtime::StreamWidth::whole);
  std::vector<Array> arrays_;
  std::size_t next_ = 0;  ///< number of arrays that the current call of the operation has declared
};

}  // namespace ranvier::tests
