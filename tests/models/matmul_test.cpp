#include "models/ops/matmul_cpu.hpp"

#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

using Product = void (*)(runtime::ComputePool&, const MatmulShape&, const MatmulArrays&);

/// An array on the host.
constexpr auto here = [](auto& array) { return array.data(); };

constexpr Product all_products[] = {matmul_cpu, matmul_cpu_widened, vector_matmul_cpu};

bool takes(Product product, const MatmulShape& shape) { return product != vector_matmul_cpu || shape.k != 0; }

/// Whether another function of the list covers this product.
bool is_tried_elsewhere(Product product, const MatmulShape& shape, DType dtype) {
  if (product == matmul_cpu_by_library) return !amx_multiplies(shape, dtype) && !vectors_multiply(shape);
  return product == vector_matmul_cpu && vectors_multiply(shape);
}

void check_against_plain(Product product, const MatmulShape& shape, DType dtype, DType c_dtype,
                         runtime::ComputePool& pool) {
  check_product(shape, dtype, c_dtype, 1,
                [&](TypedArray& c, const TypedArray& a, const TypedArray& b, const TypedArray* bias,
                    bool accumulate) { product(pool, shape, arrays_of(here, c, a, b, bias, accumulate)); });
}

}  // namespace

TEST_CASE("columns of wider arrays are multiplied like separate arrays, and their neighbors stay unchanged") {
  runtime::ComputePool pool(2);
  ranvier::tests::Share share(6, 181);
  for (const Product product : all_products)
    for (const DType dtype : float_types)
      for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1},
                                    {2, 3, 0},
                                    {33, 64, 100},
                                    {130, 48, 257},
                                    {3, 17, 5000},
                                    {300, 900, 64},
                                    {5, 4200, 20}})
        for (const int layout : {0, 1, 2, 3})
          for (const int wide : {1, 2, 4, 7}) {
            MatmulShape shape{m, n, k, (layout & 1) != 0, (layout & 2) != 0};
            if (!takes(product, shape) || !share.takes()) continue;
            if ((wide & 1) != 0) shape.a_stride = row_steps(shape).a + 5;
            if ((wide & 2) != 0) shape.b_stride = row_steps(shape).b + 3;
            if ((wide & 4) != 0) shape.c_stride = n + 7;
            check_against_plain(product, shape, dtype, dtype, pool);
          }
}

TEST_CASE("rows of columns of wider arrays have the same bits for any number of threads and of rows") {
  constexpr std::size_t m = 520;
  ranvier::tests::Share share(1, 3);
  for (const DType dtype : float_types)
    for (const auto& [n, k] : {std::array<std::size_t, 2>{96, 64}, {64, 1000}, {900, 48}})
      for (const bool transpose_b : {false, true})
        for (const std::size_t b_gap : {0, 3}) {
          if (!share.takes()) continue;
          CAPTURE_ALL(to_string(dtype), n, k, transpose_b, b_gap);
          MatmulShape shape{m, n, k, false, transpose_b, k + 5, (transpose_b ? k : n) + b_gap, n + 7};
          const TypedArray a(dtype, m * shape.a_stride, 8), b(dtype, (transpose_b ? n : k) * shape.b_stride, 9);
          TypedArray all(DType::f32, m * shape.c_stride);
          runtime::ComputePool one(1);
          matmul_cpu(one, shape, arrays_of(here, all, a, b));
          for (const int threads : {2, 3})
            for (const std::size_t rows : {1, 33, 64, 384, 520}) {
              CAPTURE(rows);
              runtime::ComputePool pool(threads);
              TypedArray some(DType::f32, rows * shape.c_stride);
              shape.m = rows;
              matmul_cpu(
                  pool, shape,
                  {.c = some.data(), .a = a.data((m - rows) * shape.a_stride), .b = b.data(), .dtype = dtype});
              CHECK(same_bits(some, 0, all, (m - rows) * shape.c_stride, rows * shape.c_stride));
            }
        }
}

TEST_CASE("a matrix product equals the plain sum in every layout and dtype") {
  runtime::ComputePool pool(2);
  ranvier::tests::Share share(2, 14);
  for (const Product product : all_products)
    for (const DType dtype : float_types)
      for (const bool half_result : {false, true})
        for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1},
                                      {2, 3, 0},
                                      {7, 5, 3},
                                      {33, 64, 100},
                                      {130, 48, 257},
                                      {64, 200, 31},
                                      {3, 17, 5000},
                                      {300, 40, 64},
                                      {5, 4200, 20},
                                      {1, 33792, 2},
                                      {1, 2, 33792}})
          for (const bool transpose_a : {false, true})
            for (const bool transpose_b : {false, true}) {
              if (!takes(product, {m, n, k}) || !share.takes()) continue;
              check_against_plain(product, {m, n, k, transpose_a, transpose_b}, dtype,
                                  half_result ? dtype : DType::f32, pool);
            }
}

TEST_CASE(
    "a product is complete even if it is so wide or deep that rounded pieces leave nothing for the last ones") {
  runtime::ComputePool pool(2);
  ranvier::tests::Share share(1, 3);
  for (const DType dtype : float_types) {
    if (!share.takes()) continue;
    check_against_plain(&matmul_cpu, {.m = 3, .n = 50304, .k = 8, .transpose_b = true}, dtype, dtype, pool);
    check_against_plain(&matmul_cpu, {.m = 3, .n = 8, .k = 50304}, dtype, dtype, pool);
  }
}

TEST_CASE("a matrix product has the same bits for any number of threads") {
  ranvier::tests::Share share(1, 3);
  for (const DType dtype : float_types)
    for (const auto& [m, n, k] :
         {std::array<std::size_t, 3>{100, 96, 64}, {257, 384, 128}, {33, 64, 1000}, {96, 80, 3000}, {40, 4200, 30}})
      for (const int layout : {0, 1, 2, 3})
        for (const Product multiply : {matmul_cpu, vector_matmul_cpu}) {
          if (is_tried_elsewhere(multiply, {m, n, k}, dtype) || !share.takes()) continue;
          const bool transpose_a = (layout & 1) != 0, transpose_b = (layout & 2) != 0;
          CAPTURE_ALL(to_string(dtype), m, n, k, transpose_a, transpose_b);
          const TypedArray a(dtype, m * k, 5), b(dtype, k * n, 6), bias(dtype, n, 7);
          TypedArray expected(dtype, m * n), c(dtype, m * n);
          for (const int threads : {1, 2, 3}) {
            runtime::ComputePool pool(threads);
            auto& to = threads == 1 ? expected : c;
            multiply(pool, {m, n, k, transpose_a, transpose_b}, arrays_of(here, to, a, b, &bias));
            CHECK(same_bits(to, expected));
          }
        }
}

TEST_CASE("rows of a product have the same bits, regardless of the number of rows") {
  runtime::ComputePool pool(2);
  ranvier::tests::Share share(2, 9);
  for (const DType dtype : float_types)
    for (const auto& [n, k] : {std::array<std::size_t, 2>{96, 64},
                               {384, 384},
                               {8, 256},
                               {384, 700},
                               {500, 832},
                               {64, 1000},
                               {48, 3000},
                               {4200, 32}}) {
      constexpr std::size_t m = 520;
      std::vector<std::pair<bool, bool>> variants;
      for (const bool transpose_b : {false, true})
        for (const bool accumulate : {false, true})
          if (share.takes()) variants.emplace_back(transpose_b, accumulate);
      if (variants.empty()) continue;
      const TypedArray a(dtype, m * k, 8), b(dtype, k * n, 9), before(DType::f32, m * n, 10);
      for (const auto& [transpose_b, accumulate] : variants) {
        CAPTURE_ALL(to_string(dtype), n, k, transpose_b, accumulate);
        for (const Product multiply : {matmul_cpu, matmul_cpu_by_library, vector_matmul_cpu}) {
          if (is_tried_elsewhere(multiply, {m, n, k}, dtype)) continue;
          TypedArray all = before;
          multiply(pool, {m, n, k, false, transpose_b}, arrays_of(here, all, a, b, nullptr, accumulate));
          for (const std::size_t rows : {1, 2, 7, 16, 33, 64, 100, 256, 384, 513}) {
            CAPTURE(rows);
            TypedArray some = before;
            const std::size_t first = m - rows;
            multiply(pool, {rows, n, k, false, transpose_b},
                     {.c = some.data(first * n),
                      .a = a.data(first * k),
                      .b = b.data(),
                      .dtype = dtype,
                      .accumulate = accumulate});
            CHECK(same_bits(some, first * n, all, first * n, rows * n));
          }
        }
      }
    }
}

TEST_CASE("products refuse invalid arguments") {
  const auto device = runtime::make_inline_device({.threads = 1});
  const auto stream = device->make_stream("compute", runtime::StreamWidth::whole);
  float memory = 0;
  const auto refused = [&](MatmulArrays arrays, std::size_t b_stride = 0) {
    arrays.c = &memory;
    arrays.a = arrays.b = &memory;
    arrays.dtype = DType::bf16;
    CHECK_THROWS_AS(matmul(*stream, {.m = 20, .n = 10, .k = 30, .b_stride = b_stride}, arrays), Error);
  };
  refused({.c_dtype = DType::f16});
  refused({}, 9);
  refused({.bias = &memory, .accumulate = true});
}
