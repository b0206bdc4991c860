// The contract of matmul.hpp on any device. matmul_test.cpp tests the CPU's division of products in detail.
#include "models/ops/matmul.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::array<std::size_t, 3> all_sizes[] = {{1, 1, 1},     {2, 3, 0},      {7, 5, 3},    {33, 64, 100},
                                                    {64, 128, 64}, {130, 48, 257}, {3, 17, 700}, {96, 80, 31}};

/// One product of each kind: plain, with bias, accumulating. Gaps between rows of c must not change.
void check(runtime::StreamView stream, const MatmulShape& shape, DType dtype, DType c_dtype) {
  CAPTURE_ALL(to_string(dtype), to_string(c_dtype), shape.m, shape.n, shape.k, shape.transpose_a,
              shape.transpose_b);
  const std::size_t a_rows = shape.transpose_a ? shape.k : shape.m, b_rows = shape.transpose_b ? shape.n : shape.k;
  const std::size_t a_stride = or_tight(shape.a_stride, shape.transpose_a ? shape.m : shape.k);
  const std::size_t b_stride = or_tight(shape.b_stride, shape.transpose_b ? shape.k : shape.n);
  const std::size_t c_stride = or_tight(shape.c_stride, shape.n);
  const TypedArray a(dtype, a_rows * a_stride, 1), b(dtype, b_rows * b_stride, 2), bias(dtype, shape.n, 3);
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    TypedArray c(c_dtype, shape.m * c_stride, 4);
    const TypedArray before = c;
    const auto expected = plain_matmul(shape, a, b, kind == 1 ? &bias : nullptr, kind == 2 ? &c : nullptr, c_dtype);
    DeviceCopies at(stream);
    matmul(stream, shape,
           {.c = at(c),
            .c_dtype = c_dtype,
            .a = at(a),
            .b = at(b),
            .dtype = dtype,
            .bias = kind == 1 ? at(bias) : nullptr,
            .accumulate = kind == 2});
    at.fetch();
    double worst = 0;
    bool stays = true;
    for (std::size_t i = 0; i < shape.m; ++i)
      for (std::size_t j = 0; j < c_stride; ++j) {
        const std::size_t place = i * c_stride + j, e = i * shape.n + j;
        if (j >= shape.n) {
          stays = stays && c[place] == before[place];
        } else {
          worst = worse(worst, std::abs(c[place] - expected.value[e]) / expected.tolerance[e]);
        }
      }
    CHECK(worst <= (on_gpu_here() ? 2 : 1));
    CHECK(stays);
  }
}

}  // namespace

TEST_CASE("a device's matrix product equals the plain sum in every layout and dtype") {
  ranvier::tests::Share share(1, 3);
  on_one_device([&](runtime::StreamView stream) {
    for (const DType dtype : float_types)
      for (const bool half_result : {false, true})
        for (const auto& [m, n, k] : all_sizes)
          for (const int layout : {0, 1, 2, 3}) {
            if (!share.takes()) continue;
            check(stream, {m, n, k, (layout & 1) != 0, (layout & 2) != 0}, dtype, half_result ? dtype : DType::f32);
          }
  });
}

TEST_CASE("a device's product supports columns of wider arrays, starting anywhere") {
  ranvier::tests::Share share(1, 3);
  on_one_device([&](runtime::StreamView stream) {
    for (const DType dtype : float_types)
      for (const auto& [m, n, k] : all_sizes)
        for (const int layout : {0, 1, 2, 3})
          for (const std::size_t gap : {3, 8}) {
            if (!share.takes()) continue;
            MatmulShape shape{m, n, k, (layout & 1) != 0, (layout & 2) != 0};
            shape.a_stride = (shape.transpose_a ? m : k) + gap;
            shape.b_stride = (shape.transpose_b ? k : n) + gap;
            shape.c_stride = n + gap;
            check(stream, shape, dtype, dtype);
          }
  });
}

TEST_CASE("a repeated product of a device has the same bits") {
  on_one_device([](runtime::StreamView stream) {
    for (const DType dtype : float_types) {
      constexpr std::size_t m = 192, n = 64, k = 1024;  // deep: sums over K may be split
      const TypedArray a(dtype, m * k, 5), b(dtype, k * n, 6);
      TypedArray first(dtype, m * n), again(dtype, m * n);
      DeviceCopies at(stream);
      matmul(stream, {m, n, k}, {.c = at(first), .c_dtype = dtype, .a = at(a), .b = at(b), .dtype = dtype});
      matmul(stream, {m, n, k}, {.c = at(again), .c_dtype = dtype, .a = at(a), .b = at(b), .dtype = dtype});
      at.fetch();
      CHECK(same_bits(first, again));
    }
  });
}
