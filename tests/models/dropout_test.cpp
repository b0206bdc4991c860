#include "models/ops/dropout.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/models/reference_dropout.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("dropout keeps and scales exactly the elements that their counters select") {
  for (const DType dtype : float_types) {
    const std::size_t elements = 1003;
    const TypedArray x(dtype, 3 * elements, 11);
    const Dropout rule = make_dropout(0.3f, 1, 2, 3, (std::int64_t{1} << 33) + 4);
    check_operator({.name = "dropout",
                    .outputs = {{"y", x, each([&](std::size_t i) {
                                   const auto sample = static_cast<std::int64_t>(i / elements);
                                   return within(x[i] * dropout_factor(rule, sample, i % elements),
                                                 half_unit(dtype) + 1e-6);
                                 })}},
                    .call = [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
                      dropout(stream, at(out[0]), dtype, 3, elements, rule);
                    }});
  }
}

TEST_CASE("arrays of any alignment and length have the same dropout") {
  const Dropout rule = make_dropout(0.4f, 1, 2, 3, 7);
  for (const DType dtype : float_types) {
    on_every_device([&](runtime::StreamView stream) {
      for (const std::size_t elements : {1, 8, 4096, 4100}) {
        const TypedArray x(dtype, 2 * elements + 1, 14);
        TypedArray aligned = x, shifted = x;
        for (std::size_t i = 0; i < 2 * elements; ++i) shifted.set(i + 1, x[i]);
        DeviceCopies at(stream);
        dropout(stream, at(aligned), dtype, 2, elements, rule);
        dropout(stream, at(shifted, 1), dtype, 2, elements, rule);
        at.fetch();
        CHECK(same_bits(aligned, 0, shifted, 1, 2 * elements));
        CHECK(aligned[2 * elements] == x[2 * elements]);
        CHECK(shifted[0] == x[0]);
      }
    });
  }
}

TEST_CASE("seed, step, site and global sample each change the dropped elements, and the rate is met") {
  const std::size_t n = 200000;
  const auto pattern = [&](std::uint64_t seed, std::int64_t step, std::uint32_t site, std::int64_t first = 0,
                           std::int64_t b = 0) {
    std::vector<bool> bits(n);
    const Dropout rule = make_dropout(0.1f, seed, step, site, first);
    for (std::size_t i = 0; i < n; ++i) bits[i] = dropout_factor(rule, b, i) != 0;
    return bits;
  };
  const auto base = pattern(1, 2, 3);
  const auto rate = [&](const std::vector<bool>& bits) {
    return static_cast<double>(std::count(bits.begin(), bits.end(), false)) / static_cast<double>(n);
  };
  CHECK(rate(base) == doctest::Approx(0.1).epsilon(0.03));
  for (const auto& other : {pattern(2, 2, 3), pattern(1, 3, 3), pattern(1, 2, 4), pattern(1, 2, 3, 1)}) {
    std::vector<bool> both(n);
    for (std::size_t i = 0; i < n; ++i) both[i] = base[i] || other[i];
    CHECK(rate(both) == doctest::Approx(0.01).epsilon(0.1));  // independent
  }
  CHECK((pattern(1, 2, 3, 0, 1) == pattern(1, 2, 3, 1)));  // in any microbatch
}
