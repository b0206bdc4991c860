// What of a matrix product a library gets at a time. The libraries' interfaces have dimensions and strides of 64 bits,
// but not all of their kernels are sure to count so far: cuBLASLt's have failed from 65535 · 32 rows on, others beyond
// 2^31 elements.
#pragma once

#include "models/ops/matmul.hpp"

#include <cstddef>

namespace ranvier::models {

inline constexpr std::size_t max_library_rows = 65535 * 32 - 1;  // M, N and K of a call
inline constexpr std::size_t max_library_elements =
    (std::size_t{1} << 31) - 1;  // from an operand's first to its last

/// A product is cut into pieces of so many rows of its result and so many terms of its sums, multiples of 64; what is
/// within the limits is one piece.
struct LibraryPieces {
  std::size_t m = 0;  ///< 0: no such pieces are within the limits, because of N
  std::size_t k = 0;
};
[[nodiscard]] LibraryPieces library_pieces(const MatmulShape& shape);

/// Whether the product is one piece.
[[nodiscard]] bool library_takes_whole(const MatmulShape& shape);

}  // namespace ranvier::models
