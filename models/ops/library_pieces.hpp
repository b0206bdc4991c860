// Splits matrix multiplications that exceed a library's limits. The interfaces have 64-bit dimensions and strides, but
// some kernels do not support them: cuBLASLt's failed for 65535 · 32 rows or more, others for more than 2^31 elements.
#pragma once

#include "models/ops/matmul.hpp"

#include <cstddef>

namespace ranvier::models {

inline constexpr std::size_t max_library_rows = 65535 * 32 - 1;  // M, N and K of a call
inline constexpr std::size_t max_library_elements =
    (std::size_t{1} << 31) - 1;  // from an operand's first element to its last

/// Size of the pieces: rows of the result and terms of the sums, multiples of 64. A multiplication within the limits is
/// one piece.
struct LibraryPieces {
  std::size_t m = 0;  ///< 0: N is too large for any piece
  std::size_t k = 0;
};
[[nodiscard]] LibraryPieces library_pieces(const MatmulShape& shape);

/// Whether the multiplication is a single piece.
[[nodiscard]] bool library_takes_whole(const MatmulShape& shape);

}  // namespace ranvier::models
