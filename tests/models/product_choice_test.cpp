// What product_choice.hpp says, on a GPU.
#include "models/ops/product_choice.hpp"

#include "models/gpt.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/run_layers.hpp"
#include "runtime/error.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Products {
  explicit Products(std::size_t rows)
      : m(rows), a(DType::bf16, m * k, 1), b(DType::bf16, k * n, 2), c(DType::bf16, m * n) {}

  void run(runtime::StreamView stream, TypedArray& y) {
    DeviceCopies at(stream);
    matmul_gelu(stream, {m, n, k},
                {.c = at(c), .c_dtype = DType::bf16, .a = at(a), .b = at(b), .dtype = DType::bf16}, at(y));
    at.fetch();
  }

  static constexpr std::size_t n = 128, k = 64;
  std::size_t m;
  TypedArray a, b, c;
};

}  // namespace

TEST_CASE("measured products are done alike from then on, and wherever the choice is taken over") {
  on_one_device([](runtime::StreamView stream) {
    Products products(48);
    TypedArray y(DType::bf16, products.c.size()), first = y, again = y;
    const auto choices = measure_products(stream, [&] { products.run(stream, y); });
    CHECK(choices.size() > sizeof(std::size_t));
    products.run(stream, first);
    adopt_products(stream, choices);
    products.run(stream, again);
    CHECK(same_bits(first, again));
    // Nothing new was met, so nothing else was chosen.
    const auto later = measure_products(stream, [&] { products.run(stream, y); });
    CHECK(later.size() == choices.size());
    products.run(stream, again);
    CHECK(same_bits(first, again));
  });
}

TEST_CASE("choices that are none are refused, and those of another cuBLAS left alone") {
  on_one_device([](runtime::StreamView stream) {
    CHECK_THROWS_AS(adopt_products(stream, std::vector<std::byte>(3)), Error);
    Products products(16);
    TypedArray y(DType::bf16, products.c.size()), again = y;
    auto choices = measure_products(stream, [&] { products.run(stream, y); });
    products.run(stream, y);
    choices.front() ^= std::byte{1};  // of the version
    std::fill(choices.begin() + sizeof(std::size_t), choices.end(), std::byte{255});
    adopt_products(stream, choices);
    products.run(stream, again);
    CHECK(same_bits(y, again));
  });
}

TEST_CASE("every product of a GPT is met before it trains") {
  on_one_device([](runtime::StreamView stream) {
    const Precision precision{DType::bf16, DType::f32};
    const GptOptions options{
        .layers = 3, .hidden = 32, .heads = 2, .vocab_size = 70, .sequence_length = 16, .precision = precision};
    const Architecture gpt = make_gpt(options);
    const MicrobatchShape shapes[] = {{3, 16, 1}, {1, 16, 1}};
    const SampleBytes sample{16 * sizeof(std::int32_t), 16 * sizeof(std::int32_t)};
    const auto run = [&] { run_each_layer(gpt, precision, sample, shapes, stream); };
    const auto choices = measure_products(stream, run);
    CHECK(choices.size() > 40 * 64);  // two shapes of at least twenty products
    CHECK(measure_products(stream, run).size() == choices.size());
  });
}
