// Arrays of any storage type for tests: written and read as double, compared bit by bit.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/philox.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

inline constexpr runtime::DType float_types[] = {runtime::DType::f32, runtime::DType::bf16, runtime::DType::f16};

class TypedArray {
 public:
  /// Zeros.
  TypedArray(runtime::DType dtype, std::size_t n) : dtype_(dtype), n_(n), bytes_(n * runtime::size_of(dtype)) {}

  /// Normally distributed, rounded to the dtype; the same for the same seed.
  TypedArray(runtime::DType dtype, std::size_t n, std::uint64_t seed, double deviation = 1) : TypedArray(dtype, n) {
    const auto key = runtime::philox_key(seed, runtime::RandomPurpose::test);
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits =
          runtime::philox(key, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0});
      const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(runtime::uniform(bits[0]))));
      set(i, deviation * radius * std::cos(2 * std::numbers::pi * static_cast<double>(runtime::uniform(bits[1]))));
    }
  }

  /// These values in fp32.
  explicit TypedArray(const std::vector<float>& values) : TypedArray(runtime::DType::f32, values.size()) {
    std::memcpy(bytes_.data(), values.data(), bytes_.size());
  }

  [[nodiscard]] runtime::DType dtype() const { return dtype_; }
  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_.size(); }

  [[nodiscard]] std::byte* data(std::size_t element = 0) {
    return bytes_.data() + element * runtime::size_of(dtype_);
  }
  [[nodiscard]] const std::byte* data(std::size_t element = 0) const {
    return bytes_.data() + element * runtime::size_of(dtype_);
  }

  [[nodiscard]] double operator[](std::size_t i) const {
    return runtime::with_float_type(dtype_, [&](auto type) {
      std::memcpy(static_cast<void*>(&type), data(i), sizeof(type));
      return static_cast<double>(runtime::to_float(type));
    });
  }
  void set(std::size_t i, double value) {
    runtime::with_float_type(dtype_, [&](auto type) {
      type = runtime::from_float<decltype(type)>(static_cast<float>(value));
      std::memcpy(data(i), static_cast<const void*>(&type), sizeof(type));
    });
  }

 private:
  runtime::DType dtype_;
  std::size_t n_;
  std::vector<std::byte> bytes_;
};

/// Whether `count` elements have the same bits in both.
inline bool same_bits(const TypedArray& a, std::size_t a_begin, const TypedArray& b, std::size_t b_begin,
                      std::size_t count) {
  return std::memcmp(a.data(a_begin), b.data(b_begin), count * runtime::size_of(a.dtype())) == 0;
}
inline bool same_bits(const TypedArray& a, const TypedArray& b) {
  return a.size() == b.size() && same_bits(a, 0, b, 0, a.size());
}

/// Maximum relative change of a value by rounding to `dtype` (normal numbers).
inline double half_unit(runtime::DType dtype) {
  return dtype == runtime::DType::bf16 ? 0x1p-8 : dtype == runtime::DType::f16 ? 0x1p-11 : 0x1p-24;
}

inline std::vector<double> doubles(const TypedArray& array) {
  std::vector<double> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array[i];
  return values;
}

/// Slope of f() in `x` by central differences.
template <typename Function>
double slope_in(double& x, double step, Function f) {
  const double keep = x;
  x = keep + step;
  const double above = f();
  x = keep - step;
  const double below = f();
  x = keep;
  return (above - below) / (2 * step);
}

/// The greater of two errors, or NaN if either is: std::max would lose it.
inline double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

}  // namespace ranvier::models
