// cuBLASLt's algorithms that fail, which only an emulated library does when it is told to.
#include "models/ops/matmul.hpp"
#include "models/ops/product_choice.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// "N:F": the library has N algorithms, of which the first F fail.
struct Algorithms {
  explicit Algorithms(const char* description) { setenv("EMULATED_CUBLAS_LT", description, 1); }
  ~Algorithms() { unsetenv("EMULATED_CUBLAS_LT"); }
};

/// The algorithm that is measured to be the fastest for a product of m rows, which no other test has.
std::optional<std::uint64_t> measured(runtime::StreamView stream, std::size_t m, DType result) {
  constexpr std::size_t n = 16, k = 8;
  const TypedArray a(DType::bf16, m * k, 1), b(DType::bf16, k * n, 2);
  TypedArray c(result, m * n);
  const auto run = [&] {
    DeviceCopies at(stream);
    matmul(stream, {m, n, k}, {.c = at(c), .c_dtype = result, .a = at(a), .b = at(b), .dtype = DType::bf16});
    at.fetch();
  };
  const ProductChoices choices = measure_products(stream, run);
  run();
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
      CHECK(c[i * n + j] == doctest::Approx(sum).epsilon(1e-2));
    }
  }
  for (const ProductChoice& choice : choices.choices) {
    if (choice.product.m == m && choice.product.c_dtype == result && choice.algorithm)
      return choice.algorithm->front();
  }
  return std::nullopt;
}

constexpr std::uint64_t in_place = 1000;

}  // namespace

TEST_CASE("an algorithm that fails while it is measured is not taken, and the twentieth is looked at, too") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("20:19");
    CHECK(measured(stream, 101, DType::bf16) == 20);
  });
}

TEST_CASE("a product of which every algorithm fails is done by our own kernels") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("3:3");
    CHECK(measured(stream, 102, DType::bf16) == std::nullopt);
  });
}

TEST_CASE("parts of a sum are added in place where the result is of float, and never in half precision") {
  on_one_device([](runtime::StreamView stream) {
    const Algorithms library("2:2");
    CHECK(measured(stream, 103, DType::f32) == in_place);
    CHECK(measured(stream, 103, DType::bf16) == std::nullopt);
  });
}
