#include "models/ops/library_pieces.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

constexpr std::size_t grain = 64;  // keeps pieces as aligned as the complete arrays

/// Largest number of `size` rows with `row` elements each, `stride` apart, within max_library_elements.
std::size_t rows_within(std::size_t size, std::size_t stride, std::size_t row) {
  if (size <= 1 || (size - 1) * stride + row <= max_library_elements) return size;
  return row > max_library_elements ? 0 : (max_library_elements - row) / stride + 1;
}

std::size_t whole_or_multiple(std::size_t size, std::size_t most) {
  most = std::min(most, max_library_rows);
  return size <= most ? size : most / grain * grain;
}

}  // namespace

LibraryPieces library_pieces(const MatmulShape& s) {
  const std::size_t a = s.a_row(), b = s.b_row();
  const bool takes_b = !s.transpose_b || rows_within(s.n, b, std::min(s.b_columns(), max_library_rows)) == s.n;
  if (s.n > max_library_rows || !takes_b) return {};
  std::size_t m = rows_within(s.m, s.c_row(), s.n), k = s.k;
  if (s.transpose_a) {
    k = rows_within(k, a, std::min(s.m, max_library_rows));
  } else {
    m = std::min(m, rows_within(s.m, a, std::min(s.k, max_library_rows)));
  }
  if (!s.transpose_b) k = std::min(k, rows_within(s.k, b, s.n));
  const LibraryPieces pieces{whole_or_multiple(s.m, m), whole_or_multiple(s.k, k)};
  return pieces.m == 0 || (pieces.k == 0 && s.k > 0) ? LibraryPieces{} : pieces;
}

bool library_takes_whole(const MatmulShape& shape) {
  const LibraryPieces pieces = library_pieces(shape);
  return pieces.m == shape.m && pieces.k == shape.k;
}

}  // namespace ranvier::models
