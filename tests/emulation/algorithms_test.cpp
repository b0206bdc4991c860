// Failing algorithms of cuBLASLt, which only an emulated library can produce on demand.
#include "models/ops/matmul.hpp"
#include "models/ops/product_choice.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// The kind of failure, in the format of cublas_lt.cpp.
struct Algorithms {
  explicit Algorithms(const char* description) { setenv("EMULATED_CUBLAS_LT", description, 1); }
  ~Algorithms() { unsetenv("EMULATED_CUBLAS_LT"); }
};

/// A product of m rows, which no other test uses.
struct Product {
  Product(std::size_t rows, DType dtype, DType result)
      : m(rows), a(dtype, m * k, 1), b(dtype, k * n, 2), c(result, m * n) {}

  void run(runtime::StreamView stream) {
    DeviceCopies at(stream);
    matmul(stream, {m, n, k}, {.c = at(c), .c_dtype = c.dtype(), .a = at(a), .b = at(b), .dtype = a.dtype()});
    at.fetch();
  }

  void check() const {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
        CHECK(c[i * n + j] == doctest::Approx(sum).epsilon(1e-2));
      }
    }
  }

  static constexpr std::size_t n = 16, k = 8;
  std::size_t m;
  TypedArray a, b, c;
};

/// The algorithm that is measured as the fastest for a product in bf16.
std::optional<std::uint64_t> measured(runtime::StreamView stream, std::size_t m, DType result) {
  Product product(m, DType::bf16, result);
  const ProductChoices choices = measure_products(stream, [&] { product.run(stream); });
  product.run(stream);
  product.check();
  for (const ProductChoice& choice : choices.choices) {
    if (choice.product.m == m && choice.product.c_dtype == result && choice.algorithm)
      return choice.algorithm->front();
  }
  return std::nullopt;
}

constexpr std::uint64_t in_place = 1000;

}  // namespace

TEST_CASE("an algorithm that fails during measurement is not chosen, and all twenty are measured") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("20:19");
    CHECK(measured(stream, 101, DType::bf16) == 20);
  });
}

TEST_CASE("a product for which every algorithm fails uses the built-in kernels") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("3:3");
    CHECK(measured(stream, 102, DType::bf16) == std::nullopt);
  });
}

TEST_CASE("a product that the library fails to describe or to find an algorithm for uses the built-in kernels") {
  on_one_device([](runtime::StreamView stream) {
    std::size_t m = 110;
    for (const char* fails : {"description", "heuristic"}) {
      CAPTURE(fails);
      const Algorithms library(fails);
      CHECK(measured(stream, ++m, DType::bf16) == std::nullopt);
      Product unmeasured(++m, DType::f32, DType::f32);
      unmeasured.run(stream);
      unmeasured.check();
    }
  });
}

TEST_CASE("a product whose only algorithm fails outside of measurements uses the built-in kernels from then on") {
  on_one_device([](runtime::StreamView stream) {
    Product product(120, DType::f32, DType::f32);
    {
      const Algorithms library("2:2");
      product.run(stream);
      product.check();
    }
    const TypedArray first = product.c;
    product.run(stream);
    CHECK(same_bits(first, product.c));
  });
}

TEST_CASE("partial sums are added in place if the result is in float, and never in half precision") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("2:2");
    CHECK(measured(stream, 103, DType::f32) == in_place);
    CHECK(measured(stream, 103, DType::bf16) == std::nullopt);
  });
}
