// What product_choice.hpp says, on a GPU.
#include "models/ops/product_choice.hpp"

#include "models/gpt.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/ops/product_choice_file.hpp"
#include "models/run_layers.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

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
    CHECK_FALSE(choices.choices.empty());
    products.run(stream, first);
    CHECK(adopt_products(stream, choices) == choices.choices.size());
    products.run(stream, again);
    CHECK(same_bits(first, again));
    // Nothing new was met, so nothing else was chosen.
    CHECK(measure_products(stream, [&] { products.run(stream, y); }) == choices);
    products.run(stream, again);
    CHECK(same_bits(first, again));
  });
}

TEST_CASE("choices of another cuBLAS, and algorithms that it does not know, are left alone") {
  on_one_device([](runtime::StreamView stream) {
    Products products(16);
    TypedArray y(DType::bf16, products.c.size()), again = y;
    auto choices = measure_products(stream, [&] { products.run(stream, y); });
    products.run(stream, y);
    for (ProductChoice& choice : choices.choices) {
      choice.algorithm.emplace();
      choice.algorithm->fill(~std::uint64_t{0});
    }
    CHECK(adopt_products(stream, choices) == 0);
    ++choices.of.version;
    for (ProductChoice& choice : choices.choices) choice.algorithm.reset();
    CHECK(adopt_products(stream, choices) == 0);
    products.run(stream, again);
    CHECK(same_bits(y, again));
  });
}

TEST_CASE("what a file remembers is not measured again, and what is new is added to it") {
  on_one_device([](runtime::StreamView stream) {
    const tests::TemporaryFolder folder;
    const auto path = folder.path() / "products.json";
    Products few(24), more(40);
    TypedArray y(DType::bf16, few.c.size()), first = y, again = y;
    const auto choose = [&](auto& products) {
      return choose_products(stream, path, "--products-file", [&] {
        TypedArray result(DType::bf16, products.c.size());
        products.run(stream, result);
      });
    };
    const ProductLibrary another{"another", 1};
    ProductChoiceFile(path, "--products-file").remember({another, {ProductChoice{}}});
    const ChosenProducts measured = choose(few);
    REQUIRE(measured.instead.size() == 1);
    CHECK(measured.instead.front() == another);
    CHECK(measured.choices.choices.size() > measured.remembered);
    few.run(stream, first);
    const std::string text = folder.read("products.json");
    const ChosenProducts remembered = choose(few);
    CHECK(remembered.remembered == remembered.choices.choices.size());
    CHECK(remembered.choices == measured.choices);
    CHECK(remembered.instead.empty());
    CHECK(folder.read("products.json") == text);
    few.run(stream, again);
    CHECK(same_bits(first, again));

    const ChosenProducts grown = choose(more);
    CHECK(grown.remembered == measured.choices.choices.size());
    CHECK(grown.choices.choices.size() > grown.remembered);
    const auto in_file = parse_product_choices(folder.read("products.json"), "products.json");
    REQUIRE(in_file.size() == 2);
    CHECK(in_file.back() == grown.choices);
  });
}

TEST_CASE("every product of a GPT is met before it trains") {
  on_one_device([](runtime::StreamView stream) {
    const Precision precision{DType::bf16, DType::f32};
    const GptOptions options{
        .layers = 3, .hidden = 16, .heads = 2, .vocab_size = 70, .sequence_length = 8, .precision = precision};
    const Architecture gpt = make_gpt(options);
    const MicrobatchShape shapes[] = {{3, 8, 1}, {1, 8, 1}};
    const SampleBytes sample{8 * sizeof(std::int32_t), 8 * sizeof(std::int32_t)};
    const auto run = [&] { run_each_layer(gpt, precision, sample, shapes, stream); };
    const auto choices = measure_products(stream, run);
    CHECK(choices.choices.size() > 40);  // two shapes of at least twenty products
    CHECK(measure_products(stream, run) == choices);
  });
}
