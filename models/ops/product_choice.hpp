// Which of the library's algorithms a GPU takes for each matrix product. Left alone, products take the library's
// first answer. Measured, they take the fastest of its first answers, and operations that are a product and more
// (fused_matmul.hpp) do both at once where that is faster. A sum's order is its algorithm's: so one rank measures,
// and all ranks take what it chose, before the first step.
//
//   models::ProductChoices choices;
//   if (rank == 0) choices = measure_products(stream, [&] { /* everything once */ });
//   /* rank 0's to all: kernel_choice_file.hpp writes and reads them */
//   adopt_products(stream, choices);
//
// Functions are declared in every build, defined where with_cuda is true (runtime/cuda_build.hpp). Loop thread
// only.
#pragma once

#include "models/ops/library_matmul_cuda.hpp"
#include "runtime/stream.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// All that an algorithm depends on; fields as in MatmulShape and MatmulArrays, strides always given.
struct LibraryProduct {
  std::size_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false;
  runtime::DType dtype = runtime::DType::f32, c_dtype = runtime::DType::f32;
  bool has_bias = false, accumulate = false;
  Epilogue::Kind epilogue = Epilogue::Kind::none;
  std::array<std::uint32_t, 5> alignments = {};  ///< bytes, of a, b, c, bias, the epilogue's array

  auto operator<=>(const LibraryProduct&) const = default;
};

struct ProductChoice {
  /// As the library keeps it.
  using Algorithm = std::array<std::uint64_t, 8>;

  LibraryProduct product;
  std::optional<Algorithm> algorithm;  ///< none: not by the library, or what its epilogue does is done apart

  bool operator==(const ProductChoice&) const = default;
};

/// Whom choices hold for: the kind of GPU that measured, and cuBLASLt's version (cublasLtGetVersion).
struct ProductLibrary {
  std::string gpu;
  std::size_t version = 0;

  bool operator==(const ProductLibrary&) const = default;
};

struct ProductChoices {
  ProductLibrary of;
  std::vector<ProductChoice> choices;  ///< by product, each once

  bool operator==(const ProductChoices&) const = default;
};

[[nodiscard]] ProductLibrary product_library(runtime::StreamView stream);

/// Runs `work`, which queues products on `stream` of a GPU: one whose shape, types and alignment are new is tried
/// by several algorithms, several times, so results mean nothing. Products of fp32 are not measured: their bits are
/// the same in every run. Blocks. What this process now does on that GPU, but for fp32.
[[nodiscard]] ProductChoices measure_products(runtime::StreamView stream, const std::function<void()>& work);

/// From now on products on the stream's GPU are done as measure_products() of another rank, or of another run,
/// says. What its cuBLAS cannot do here, and all that a cuBLAS of another version chose, is left out: new to
/// measure_products(), and otherwise done by the library's first answer with nothing fused. How many were not.
std::size_t adopt_products(runtime::StreamView stream, const ProductChoices& choices);

}  // namespace ranvier::models
