// Checks an operation's declared cost: it gets arrays of exactly its sizes, marked as read or written, and a test
// whether it reads and writes them.
//
//   CostedRun run(DType::bf16);
//   const auto x = run.reads(n), y = run.writes(n);
//   run.check(WorkKind::activation, [&](StreamView stream) { gelu_forward(stream, DType::bf16, run[y], run[x], n); });
#pragma once

#include "runtime/base/dtype.hpp"
#include "tests/doubles/recording_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ranvier::tests {

class CostedRun {
 public:
  using DType = runtime::DType;

  explicit CostedRun(DType dtype) : dtype_(dtype) {}

  /// Arrays of n elements, of the run's type by default.
  std::size_t reads(std::size_t n) { return reads(n, dtype_); }
  std::size_t reads(std::size_t n, DType dtype) { return add(true, false, n * size_of(dtype), values(dtype, n)); }
  std::size_t writes(std::size_t n) { return writes(n, dtype_); }
  std::size_t writes(std::size_t n, DType dtype) { return writes_bytes(n * size_of(dtype), size_of(dtype)); }
  std::size_t changes(std::size_t n) { return changes(n, dtype_); }
  std::size_t changes(std::size_t n, DType dtype) { return add(true, true, n * size_of(dtype), values(dtype, n)); }
  std::size_t writes_bytes(std::size_t bytes, std::size_t width = 1) {
    return add(false, true, bytes, std::vector<std::byte>(bytes, sentinel), width);
  }
  /// An array of `stored` elements, n of which are read.
  std::size_t reads_of(std::size_t stored, std::size_t n) {
    return add(true, false, n * size_of(dtype_), values(dtype_, stored));
  }
  /// Tokens, positions, indices; another order of them must change the result.
  std::size_t reads_integers(std::vector<std::int32_t> integers) {
    const auto id = add(true, false, integers.size() * sizeof(std::int32_t), bytes_of(integers));
    std::rotate(integers.begin(), integers.begin() + 1, integers.end());
    arrays_[id].others = bytes_of(integers);
    return id;
  }
  /// i · step mod `below`.
  std::size_t reads_integers(std::size_t n, std::size_t below, std::size_t step = 1) {
    std::vector<std::int32_t> integers(n);
    for (std::size_t i = 0; i < n; ++i) integers[i] = static_cast<std::int32_t>(i * step % below);
    return reads_integers(std::move(integers));
  }
  std::size_t reads_bytes(std::size_t bytes) {
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 % 5);
    const auto id = add(true, false, bytes, values);
    for (auto& value : arrays_[id].others) value = static_cast<std::byte>(static_cast<int>(value) + 1);
    return id;
  }
  /// Costs nothing.
  std::size_t workspace(std::size_t bytes) { return add(false, false, bytes, std::vector<std::byte>(bytes)); }

  [[nodiscard]] std::byte* operator[](std::size_t id) { return arrays_[id].now.data(); }
  [[nodiscard]] float* floats(std::size_t id) { return reinterpret_cast<float*>((*this)[id]); }
  [[nodiscard]] std::int32_t* integers(std::size_t id) { return reinterpret_cast<std::int32_t*>((*this)[id]); }

  using Operation = std::function<void(runtime::StreamView)>;
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

  std::size_t add(bool read, bool written, std::size_t counted, std::vector<std::byte> first,
                  std::size_t width = 1) {
    std::vector<std::byte> others(first.rbegin(), first.rend());
    for (std::size_t i = 0; i + size_of(dtype_) <= others.size(); i += size_of(dtype_))
      std::reverse(others.begin() + static_cast<std::ptrdiff_t>(i),
                   others.begin() + static_cast<std::ptrdiff_t>(i + size_of(dtype_)));
    arrays_.push_back({read, written, counted, width, first, others, first});
    return arrays_.size() - 1;
  }

  std::vector<std::byte> values(DType dtype, std::size_t n) {
    const models::TypedArray drawn(dtype, n, ++seed_);
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
    operation(*stream_);
    stream_->synchronize();
    std::vector<std::vector<std::byte>> after;
    for (const Array& array : arrays_) after.push_back(array.now);
    return after;
  }

  DType dtype_;
  std::uint64_t seed_ = 0;
  RecordingDevice device_;
  std::unique_ptr<runtime::Stream> stream_ = device_.make_stream("operations", runtime::StreamWidth::whole);
  std::vector<Array> arrays_;
};

}  // namespace ranvier::tests
