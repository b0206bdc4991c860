// Choice of cuBLASLt's algorithm for each matrix multiplication. Without measurement, the library's first proposal is
// used. With measurement, the fastest of its first proposals, fused with a following operation if that is faster
// (fused_matmul.hpp). The algorithm determines the order of sums, so rank 0 measures and all ranks adopt its choices.
// Loop thread only; defined if with_cuda is true.
//
//   models::ProductChoices choices;
//   if (rank == 0) choices = measure_products(stream, [&] { /* every operation once */ });
//   adopt_products(stream, choices);  // all ranks, with rank 0's choices (kernel_choice_file.hpp)
#pragma once

#include "models/ops/library_matmul_cuda.hpp"
#include "runtime/device/stream.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Everything that an algorithm depends on. Fields as in MatmulShape and MatmulArrays; strides are never 0.
struct LibraryProduct {
  std::size_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false;
  runtime::DType dtype = runtime::DType::f32, c_dtype = runtime::DType::f32;
  bool has_bias = false, accumulate = false;
  Epilogue::Kind epilogue = Epilogue::Kind::none;
  std::array<std::uint32_t, 5> alignments = {};  ///< bytes, for a, b, c, bias and the epilogue's array

  auto operator<=>(const LibraryProduct&) const = default;
};

struct ProductChoice {
  /// Algorithm in the library's binary format.
  using Algorithm = std::array<std::uint64_t, 8>;

  LibraryProduct product;
  std::optional<Algorithm> algorithm;  ///< none: not by the library, or without its epilogue

  bool operator==(const ProductChoice&) const = default;
};

/// GPU and library for which choices are valid: the GPU's name, and cuBLASLt's version (cublasLtGetVersion).
struct ProductLibrary {
  std::string gpu;
  std::size_t version = 0;

  bool operator==(const ProductLibrary&) const = default;
};

struct ProductChoices {
  ProductLibrary of;
  std::vector<ProductChoice> choices;  ///< ordered by product, each once

  bool operator==(const ProductChoices&) const = default;
};

[[nodiscard]] ProductLibrary product_library(runtime::StreamView stream);

/// Runs `work`, which queues matrix multiplications on `stream` of a GPU. Each new shape, type and alignment is timed
/// with several algorithms, so the results are meaningless. fp32 is not measured: its bits are the same in every run.
/// Returns the choices that this process now uses on that GPU. Blocks.
[[nodiscard]] ProductChoices measure_products(runtime::StreamView stream, const std::function<void()>& work);

/// Uses the choices of measure_products() of another rank or run on the stream's GPU. Skips choices of another cuBLAS
/// version, and those that this cuBLAS rejects; these use the library's first proposal without fusion until measured.
/// Returns the number of adopted choices.
std::size_t adopt_products(runtime::StreamView stream, const ProductChoices& choices);

}  // namespace ranvier::models
