// The contract of fused_matmul.hpp on any device; on a GPU with and without fusion.
#include "models/ops/fused_matmul.hpp"

#include "models/ops/activation.hpp"
#include "models/ops/library_matmul_cuda.hpp"
#include "models/ops/norm.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::array<std::size_t, 3> all_sizes[] = {{7, 5, 3}, {33, 64, 100}, {64, 128, 64}, {130, 48, 257}};

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

/// Allowed error of the library's GELU, in units of its argument.
double library_error(bool at_once) { return at_once ? 2e-3 : 2e-6; }

/// Calls body(stream, at_once, dtype, m, n, k) for every dtype and size: once, and on a GPU a second time with products
/// fused wherever the library supports it.
template <typename Body>
void for_products(Body body) {
  on_one_device([&](runtime::StreamView stream) {
    for (const bool at_once : {false, true})
      for (const DType dtype : float_types)
        for (const auto& [m, n, k] : all_sizes) {
          if (at_once && !on_gpu_here()) continue;
          CAPTURE_ALL(to_string(dtype), n, at_once);
          body(stream, at_once, dtype, m, n, k);
        }
  });
}

/// Makes products like this one use the fused epilogue from now on; overwrites the contents of `arrays`. Returns false
/// if that is not supported.
bool choose([[maybe_unused]] runtime::StreamView stream, [[maybe_unused]] const MatmulShape& shape,
            [[maybe_unused]] const MatmulArrays& arrays, [[maybe_unused]] const Epilogue& epilogue) {
  if constexpr (runtime::with_cuda) {
    library_weigh_cuda(stream, shape, arrays, epilogue, {}, {});
    return library_matmul_cuda(stream, shape, arrays, epilogue);
  }
  return false;
}

void say(const char* what, const MatmulShape& shape, DType dtype, bool possible) {
  // Nothing is promised about fp32 and odd rows.
  if (dtype != DType::f32 && shape.n % 8 == 0 && shape.k % 8 == 0)
    WARN_MESSAGE(possible, "cuBLASLt does not compute ", what, " of ", to_string(dtype), " in one call");
}

}  // namespace

TEST_CASE("a product with GELU equals both operations, in every dtype") {
  for_products([](runtime::StreamView stream, bool at_once, DType dtype, auto m, auto n, auto k) {
    const MatmulShape shape{m, n, k};
    const TypedArray a(dtype, m * k, 1), b(dtype, k * n, 2, 0.2), bias(dtype, n, 3);
    TypedArray c(dtype, m * n), y(dtype, m * n), again(dtype, m * n);
    auto expected = plain_matmul(shape, a, b, &bias, nullptr, dtype);
    DeviceCopies at(stream);
    MatmulArrays arrays = arrays_of(at, y, a, b, &bias);
    if (at_once) say("GELU", shape, dtype, choose(stream, shape, arrays, {Epilogue::Kind::gelu, at(c)}));
    arrays.c = at(c);
    matmul_gelu(stream, shape, arrays, at(y));
    gelu_forward(stream, dtype, at(again), at(c), m * n);
    TypedArray c_of_erf(dtype, m * n), y_of_erf(dtype, m * n), again_of_erf(dtype, m * n);
    arrays.c = at(c_of_erf);
    matmul_gelu(stream, shape, arrays, at(y_of_erf), GeluForm::erf);
    gelu_forward(stream, dtype, at(again_of_erf), at(c_of_erf), m * n, GeluForm::erf);
    at.fetch();
    CHECK(worst(c, expected) <= (on_gpu_here() ? 2 : 1));
    if (!at_once) CHECK(same_bits(y, again));
    CHECK(same_bits(y_of_erf, again_of_erf));
    for (std::size_t i = 0; i < m * n; ++i) {
      const double x = std::exchange(expected.value[i], gelu(expected.value[i]));
      expected.tolerance[i] = 2.4 * expected.tolerance[i] + half_unit(dtype) * std::abs(expected.value[i]) +
                              library_error(at_once) * (1 + std::abs(x));
    }
    CHECK(worst(y, expected) <= 1);
  });
}

TEST_CASE("a product with an addend equals both operations, in every dtype") {
  for_products([](runtime::StreamView stream, bool at_once, DType dtype, auto m, auto n, auto k) {
    const MatmulShape shape{m, n, k};
    const TypedArray a(dtype, m * k, 1), b(dtype, k * n, 2), bias(dtype, n, 3), addend(dtype, m * n, 4);
    TypedArray c(dtype, m * n);
    auto expected = plain_matmul(shape, a, b, &bias, nullptr, dtype);
    DeviceCopies at(stream);
    const MatmulArrays arrays = arrays_of(at, c, a, b, &bias);
    TypedArray copy = addend;
    if (at_once) say("sum", shape, dtype, choose(stream, shape, arrays, {Epilogue::Kind::sum, at(copy)}));
    matmul_add(stream, shape, arrays, at(addend));
    at.fetch();
    for (std::size_t i = 0; i < m * n; ++i) {
      expected.value[i] += addend[i];
      expected.tolerance[i] += half_unit(dtype) * std::abs(expected.value[i]);
    }
    CHECK(worst(c, expected) <= (on_gpu_here() ? 2 : 1));
  });
}

TEST_CASE("a product with GELU's gradient equals both operations, with or without GELU's value") {
  for_products([](runtime::StreamView stream, bool at_once, DType dtype, auto m, auto n, auto k) {
    const MatmulShape shape{.m = m, .n = n, .k = k, .transpose_b = true};
    const TypedArray a(dtype, m * k, 4), b(dtype, n * k, 5, 0.2), x(dtype, m * n, 6, 1.5);
    TypedArray d(dtype, m * n), d_alone(dtype, m * n), after = x, value(dtype, m * n);
    auto expected = plain_matmul(shape, a, b, nullptr, nullptr, dtype);
    DeviceCopies at(stream);
    const MatmulArrays arrays = arrays_of(at, d, a, b);
    if (at_once)
      say("gradient of GELU", shape, dtype,
          choose(stream, shape, arrays, {Epilogue::Kind::gelu_backward, at(after)}));
    matmul_gelu_backward(stream, shape, arrays, at(after), at(after));
    MatmulArrays alone = arrays;
    alone.c = at(d_alone);
    matmul_gelu_backward(stream, shape, alone, at(x), nullptr);
    gelu_forward(stream, dtype, at(value), at(x), m * n);
    at.fetch();
    CHECK(same_bits(after, value));
    CHECK(same_bits(d, d_alone));
    for (std::size_t i = 0; i < m * n; ++i) {
      const double factor = slope(x[i]), plain = std::exchange(expected.value[i], expected.value[i] * factor);
      expected.tolerance[i] = 2 * std::abs(factor) * expected.tolerance[i] +
                              half_unit(dtype) * std::abs(expected.value[i]) +
                              library_error(at_once) * std::abs(plain) + 1e-6;
    }
    CHECK(worst(d, expected) <= 1);
  });
}

TEST_CASE("the gradients of a weight and its bias are a product and column sums, overwritten and accumulated") {
  for_products([](runtime::StreamView stream, bool at_once, DType dtype, std::size_t m, std::size_t n,
                  std::size_t k) {
    for (const DType gradient_dtype : {DType::f32, dtype})
      for (const bool accumulate : {false, true}) {
        CAPTURE_ALL(to_string(gradient_dtype), accumulate);
        const MatmulShape shape{.m = m, .n = n, .k = k, .transpose_a = true};
        const TypedArray a(dtype, k * m, 7), b(dtype, k * n, 8), old_sums(gradient_dtype, n, 9);
        TypedArray c(gradient_dtype, m * n, 10), scratch = c, sums = old_sums, scratch_sums = old_sums;
        const auto expected = plain_matmul(shape, a, b, nullptr, accumulate ? &c : nullptr, gradient_dtype);
        DeviceCopies at(stream);
        MatmulArrays arrays = arrays_of(at, scratch, a, b, nullptr, accumulate);
        if (at_once && gradient_dtype == DType::f32)
          say("column sums", shape, dtype,
              choose(stream, shape, arrays, {Epilogue::Kind::column_sums, at(scratch_sums)}));
        arrays.c = at(c);
        matmul_column_sums(stream, shape, arrays, {at(sums), gradient_dtype, accumulate});
        at.fetch();
        CHECK(worst(c, expected) <= (on_gpu_here() ? 2 : 1));
        double most = 0;
        for (std::size_t j = 0; j < n; ++j) {
          double sum = accumulate ? old_sums[j] : 0, magnitude = std::abs(sum);
          for (std::size_t i = 0; i < k; ++i) {
            sum += b[i * n + j];
            magnitude += std::abs(b[i * n + j]);
          }
          most =
              worse(most, std::abs(sums[j] - sum) / (half_unit(gradient_dtype) * std::abs(sum) + 1e-6 * magnitude));
        }
        CHECK(most <= 1);
      }
  });
}

TEST_CASE("separate sums of a bias's gradient are added later with the bits of one sum") {
  on_every_device([](runtime::StreamView stream) {
    const std::size_t m = 40, n = 48, k = 300;
    for (const DType dtype : float_types)
      for (const DType gradient_dtype : {DType::f32, dtype})
        for (const bool accumulate : {false, true}) {
          CAPTURE_ALL(to_string(dtype), to_string(gradient_dtype), accumulate);
          const TypedArray a(dtype, k * m, 1), b(dtype, k * n, 2);
          TypedArray c(gradient_dtype, m * n, 3), again = c;
          TypedArray sums(gradient_dtype, n, 4), later = sums, apart(DType::f32, n, 5);
          DeviceCopies at(stream);
          MatmulArrays arrays = arrays_of(at, c, a, b, nullptr, accumulate);
          const MatmulShape shape{.m = m, .n = n, .k = k, .transpose_a = true};
          matmul_column_sums(stream, shape, arrays, {at(sums), gradient_dtype, accumulate});
          arrays.c = at(again);
          matmul_column_sums(stream, shape, arrays, {.sums = at(apart)});
          store_gradient(stream, at(later), gradient_dtype, at.floats(apart), n, accumulate);
          at.fetch();
          CHECK(same_bits(c, again));
          CHECK(same_bits(sums, later));
        }
  });
}
