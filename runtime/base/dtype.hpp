// Element types and strided arrays in device memory. Bf16 and F16 are storage only: arithmetic is done in float.
#pragma once

#include "runtime/base/names.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace ranvier::runtime {

/// i8 and u8 are stored in blocks of numbers with a common scale (runtime/kernels/int8_block.hpp).
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i8, u8 };

[[nodiscard]] constexpr bool is_in_blocks(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

/// Elements of a block, and its bytes: a byte per element and a float.
inline constexpr std::size_t int8_block_elements = 256, int8_block_bytes = int8_block_elements + sizeof(float);

/// Bytes of an element; 0 for types in blocks (see bytes_of()).
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i8:
    case DType::u8:
      break;
  }
  return 0;
}

/// Bytes of an array, in whole blocks.
[[nodiscard]] constexpr std::size_t bytes_of(DType dtype, std::size_t elements) {
  return is_in_blocks(dtype) ? (elements + int8_block_elements - 1) / int8_block_elements * int8_block_bytes
                             : elements * size_of(dtype);
}

/// Largest number of elements that fit into `bytes`, in whole blocks.
[[nodiscard]] constexpr std::size_t elements_in(std::size_t bytes, DType dtype) {
  return is_in_blocks(dtype) ? bytes / int8_block_bytes * int8_block_elements : bytes / size_of(dtype);
}

[[nodiscard]] constexpr std::string_view to_string(DType dtype) {
  return enum_name<DType::u8>(dtype, {"fp32", "bf16", "fp16", "fp64", "int32", "int8", "uint8"});
}

struct Bf16 {
  std::uint16_t bits = 0;
};

struct F16 {
  std::uint16_t bits = 0;
};

[[nodiscard]] inline float to_float(float value) { return value; }

[[nodiscard]] inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

[[nodiscard]] inline float to_float(F16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/// Rounds to nearest even. NaN stays NaN and keeps the high bits of its payload, as in hardware.
template <typename T>
[[nodiscard]] T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

template <>
inline Bf16 from_float<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  // A select instead of a branch vectorizes.
  return {static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded >> 16)};
}

template <>
inline F16 from_float<F16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal result: adding 0.5 leaves the rounded mantissa in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

/// Rounds stochastically to a value of bf16: away from zero with probability distance / gap, for uniform `random`.
/// Infinity and NaN stay.
[[nodiscard]] constexpr float round_to_bf16(float value, std::uint16_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const std::uint32_t quiet = (bits & 0x7fffffu) != 0 ? bits | 0x400000u : bits;
  return std::bit_cast<float>((finite ? bits + random : quiet) & 0xffff0000u);
}

template <typename T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<Bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<F16> = DType::f16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;

/// Calls `f` with a value of the type that stores `dtype` (f32, bf16 or f16).
template <typename OfBf16 = Bf16, typename OfF16 = F16, typename F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16:
      return f(OfBf16{});
    case DType::f16:
      return f(OfF16{});
    default:
      return f(float{});
  }
}

/// Layout of an array in runs of equal length and distance: one slice of every row of a larger array. Kernels take it
/// in one call, regardless of the number of runs.
struct StridedLayout {
  std::size_t run = 0;     ///< elements per run; 0: contiguous array
  std::size_t stride = 0;  ///< elements from the start of a run to the start of the next, at least `run`
  std::size_t first = 0;   ///< offset of element 0, counted within the runs

  [[nodiscard]] constexpr bool contiguous() const noexcept { return run == stride; }
  /// Offset of element `x` from the array's address, in elements.
  [[nodiscard]] constexpr std::size_t at(std::size_t x) const noexcept {
    return contiguous() ? first + x : (first + x) / run * stride + (first + x) % run;
  }
  /// Number of elements starting at `x` that are contiguous.
  [[nodiscard]] std::size_t together(std::size_t x) const noexcept {
    return contiguous() ? std::numeric_limits<std::size_t>::max() : run - (first + x) % run;
  }

  friend bool operator==(const StridedLayout&, const StridedLayout&) = default;
};

}  // namespace ranvier::runtime
