// An algorithm unknown to cuBLASLt. In a separate file, the last one by name: the library may crash on it, which then
// affects no other test.
#include "models/ops/matmul.hpp"
#include "models/ops/product_choice.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("algorithms that cuBLASLt does not support are not used") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t m = 16, n = 128, k = 64;
    const TypedArray a(DType::bf16, m * k, 1), b(DType::bf16, k * n, 2);
    TypedArray first(DType::bf16, m * n), again = first;
    const auto run = [&](TypedArray& c) {
      DeviceCopies at(stream);
      matmul(stream, {m, n, k}, arrays_of(at, c, a, b));
      at.fetch();
    };
    ProductChoices choices = measure_products(stream, [&] { run(first); });
    CHECK_FALSE(choices.choices.empty());
    run(first);
    for (ProductChoice& choice : choices.choices) choice.algorithm.emplace().fill(~std::uint64_t{0});
    CHECK(adopt_products(stream, choices) == 0);
    run(again);
    CHECK(same_bits(first, again));
  });
}
