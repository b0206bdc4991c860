// The contract of matmul.hpp on any device. matmul_test.cpp tests the CPU's division of products in detail.
#include "models/ops/matmul.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::array<std::size_t, 3> all_sizes[] = {{1, 1, 1},     {2, 3, 0},      {7, 5, 3},    {33, 64, 100},
                                                    {64, 128, 64}, {130, 48, 257}, {3, 17, 700}, {96, 80, 31}};

}  // namespace

TEST_CASE("a device's matrix product equals the plain sum in every layout and dtype, in arrays of any width") {
  ranvier::tests::Share share(1, 3);
  on_one_device([&](runtime::StreamView stream) {
    for (const DType dtype : float_types)
      for (const auto& [half_result, gap] :
           {std::pair<bool, std::size_t>{false, 0}, {true, 0}, {true, 3}, {true, 8}})
        for (const auto& [m, n, k] : all_sizes)
          for (const int layout : {0, 1, 2, 3}) {
            if (!share.takes()) continue;
            MatmulShape shape{m, n, k, (layout & 1) != 0, (layout & 2) != 0};
            const RowSteps narrow = row_steps(shape);
            if (gap > 0) {
              shape.a_stride = narrow.a + gap;
              shape.b_stride = narrow.b + gap;
              shape.c_stride = narrow.c + gap;
            }
            check_product(shape, dtype, half_result ? dtype : DType::f32, on_gpu_here() ? 2 : 1,
                          [&](TypedArray& c, const TypedArray& a, const TypedArray& b, const TypedArray* bias,
                              bool accumulate) {
                            DeviceCopies at(stream);
                            matmul(stream, shape, arrays_of(at, c, a, b, bias, accumulate));
                            at.fetch();
                          });
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
      matmul(stream, {m, n, k}, arrays_of(at, first, a, b));
      matmul(stream, {m, n, k}, arrays_of(at, again, a, b));
      at.fetch();
      CHECK(same_bits(first, again));
    }
  });
}
