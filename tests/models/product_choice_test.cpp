// The contract of product_choice.hpp on a GPU.
#include "models/ops/product_choice.hpp"

#include "models/core/run_layers.hpp"
#include "models/families/gpt.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/ops/kernel_choice_file.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Products {
  explicit Products(std::size_t rows)
      : m(rows), a(DType::bf16, m * k, 1), b(DType::bf16, k * n, 2), c(DType::bf16, m * n) {}

  void run(runtime::StreamView stream, TypedArray& y) {
    DeviceCopies at(stream);
    matmul_gelu(stream, {m, n, k}, arrays_of(at, c, a, b), at(y));
    at.fetch();
  }

  static constexpr std::size_t n = 128, k = 64;
  std::size_t m;
  TypedArray a, b, c;
};

}  // namespace

TEST_CASE("measured products use the same algorithm from then on, and wherever the choice is adopted") {
  on_one_device([](runtime::StreamView stream) {
    Products products(48);
    TypedArray y(DType::bf16, products.c.size()), first = y, again = y;
    const auto choices = measure_products(stream, [&] { products.run(stream, y); });
    CHECK_FALSE(choices.choices.empty());
    products.run(stream, first);
    CHECK(adopt_products(stream, choices) == choices.choices.size());
    products.run(stream, again);
    CHECK(same_bits(first, again));
    // Without new products the choices stay the same.
    CHECK(measure_products(stream, [&] { products.run(stream, y); }) == choices);
    products.run(stream, again);
    CHECK(same_bits(first, again));
  });
}

TEST_CASE("choices of another cuBLAS are not used") {
  on_one_device([](runtime::StreamView stream) {
    Products products(16);
    TypedArray y(DType::bf16, products.c.size()), again = y;
    auto choices = measure_products(stream, [&] { products.run(stream, y); });
    products.run(stream, y);
    ++choices.of.version;
    for (ProductChoice& choice : choices.choices) choice.algorithm.reset();
    CHECK(adopt_products(stream, choices) == 0);
    products.run(stream, again);
    CHECK(same_bits(y, again));
  });
}

TEST_CASE("sums over many rows, split or not, have the same bits twice") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t m = 16, n = 16, k = 4096;  // few results: splitting the sum pays off
    const TypedArray a(DType::bf16, k * m, 1), b(DType::bf16, k * n, 2);
    TypedArray first(DType::f32, m * n), again = first;
    const auto run = [&](TypedArray& c) {
      DeviceCopies at(stream);
      matmul(stream, {.m = m, .n = n, .k = k, .transpose_a = true}, arrays_of(at, c, a, b));
      at.fetch();
    };
    (void)measure_products(stream, [&] { run(first); });
    run(first);
    for (int i = 0; i < 5; ++i) {
      run(again);
      CHECK(same_bits(first, again));
    }
  });
}

TEST_CASE("products in the file are not measured again, and new ones are added to it") {
  on_one_device([](runtime::StreamView stream) {
    const tests::TemporaryFolder folder;
    const auto path = folder.path() / "products.json";
    Products few(24), more(40);
    TypedArray y(DType::bf16, few.c.size()), first = y, again = y;
    const auto choose = [&](auto& products) {
      return choose_kernels(stream, {.file = path, .flag = "--products-file"}, [&] {
        TypedArray result(DType::bf16, products.c.size());
        products.run(stream, result);
      });
    };
    const auto list = [](const ChosenKernels& chosen) {
      REQUIRE(chosen.choices.products.size() == 1);
      return chosen.choices.products.front();
    };
    ProductChoices another{{"another", 1}, {}};
    another.choices.emplace_back();
    KernelChoiceFile(path, "--products-file").remember({{another}, {}});
    const ChosenKernels measured = choose(few);
    CHECK(measured.instead.products == std::vector{another});
    CHECK(list(measured).choices.size() > measured.remembered_products);
    few.run(stream, first);
    const std::string text = folder.read("products.json");
    const ChosenKernels remembered = choose(few);
    CHECK(remembered.remembered_products == list(remembered).choices.size());
    CHECK(remembered.choices == measured.choices);
    CHECK(remembered.instead.products.empty());
    CHECK(folder.read("products.json") == text);
    few.run(stream, again);
    CHECK(same_bits(first, again));

    const ChosenKernels grown = choose(more);
    CHECK(grown.remembered_products == list(measured).choices.size());
    CHECK(list(grown).choices.size() > grown.remembered_products);
    const auto in_file = parse_kernel_choices(folder.read("products.json"), "products.json").products;
    REQUIRE(in_file.size() == 2);
    CHECK(in_file.back() == list(grown));
  });
}

TEST_CASE("every product of a GPT is measured before training") {
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
