#include "models/ops/library_pieces.hpp"

#include "models/ops/attention.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier::models;

namespace {

/// Distance from an operand's first element to its last.
std::size_t span(std::size_t rows, std::size_t stride, std::size_t row) { return (rows - 1) * stride + row; }

bool within_limits(const MatmulShape& s, std::size_t m, std::size_t k) {
  const auto [a, b, c] = row_steps(s);
  return std::max({m, s.n, k}) <= max_library_rows &&
         std::max({s.transpose_a ? span(k, a, m) : span(m, a, k), s.transpose_b ? span(s.n, b, k) : span(k, b, s.n),
                   span(m, c, s.n)}) <= max_library_elements;
}

}  // namespace

TEST_CASE("a product within the libraries' safe sizes is one piece") {
  for (const MatmulShape& shape :
       {MatmulShape{.m = 1, .n = 1, .k = 1}, MatmulShape{.m = 16384, .n = 50304, .k = 768, .transpose_b = true},
        MatmulShape{.m = 2097119, .n = 1000, .k = 3}, MatmulShape{.m = 2, .n = 1, .k = 2097119},
        MatmulShape{.m = 70, .n = 40, .k = 33, .a_stride = 100, .b_stride = 64, .c_stride = 48}}) {
    CHECK(within_limits(shape, shape.m, shape.k));
    CHECK(library_takes_whole(shape));
  }
}

TEST_CASE("a larger product is split into aligned pieces within the limits, as large as possible") {
  constexpr std::size_t V = 50304, tokens = 65536;  // logits of 3.3e9 elements
  for (const MatmulShape& shape :
       {MatmulShape{.m = tokens, .n = V, .k = 768, .transpose_b = true},                     // the logits
        MatmulShape{.m = tokens, .n = 768, .k = V},                                          // the norm's gradient
        MatmulShape{.m = V, .n = 768, .k = tokens, .transpose_a = true},                     // the table's gradient
        MatmulShape{.m = tokens, .n = V / 4, .k = 768, .transpose_b = true, .c_stride = V},  // a tile's logits
        MatmulShape{.m = 3000000, .n = 16, .k = 16},
        MatmulShape{.m = 16, .n = 16, .k = 3000000, .transpose_a = true},
        MatmulShape{.m = 3000000, .n = 16, .k = 3000000, .transpose_a = true, .transpose_b = true}}) {
    CAPTURE_ALL(shape.m, shape.n, shape.k);
    const LibraryPieces pieces = library_pieces(shape);
    CHECK(!library_takes_whole(shape));
    CHECK(within_limits(shape, pieces.m, pieces.k));
    for (const auto& [piece, size] : {std::pair{pieces.m, shape.m}, {pieces.k, shape.k}}) {
      CHECK(piece <= size);
      CHECK((piece == size || piece % 64 == 0));
    }
    CHECK((pieces.m == shape.m || !within_limits(shape, pieces.m + 64, pieces.k)));
    CHECK((pieces.k == shape.k || !within_limits(shape, pieces.m, pieces.k + 64)));
  }
}

TEST_CASE("a product that no split of its rows or sums brings within the limits has no pieces") {
  for (const MatmulShape& shape :
       {MatmulShape{.m = 64, .n = 3000000, .k = 64},
        MatmulShape{.m = 64, .n = 64, .k = 64, .transpose_b = true, .b_stride = std::size_t{1} << 28},
        MatmulShape{.m = 128, .n = 64, .k = 64, .c_stride = std::size_t{1} << 28}}) {
    CHECK(library_pieces(shape).m == 0);
    CHECK(!library_takes_whole(shape));
  }
}

TEST_CASE("a library's attention is used for queries, keys and values of less than 2^31 elements") {
  AttentionShape shape{
      .samples = 910, .positions = 1024, .heads = 12, .channels = 64, .kernels = AttentionKernels::cudnn};
  CHECK(library_attention_suits(shape, ranvier::runtime::DType::bf16));
  ++shape.samples;  // 2304 · 1024 elements more
  CHECK(!library_attention_suits(shape, ranvier::runtime::DType::bf16));
}
