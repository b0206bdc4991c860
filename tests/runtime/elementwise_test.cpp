// Every kernel against a plain loop of its definition, for all types, sizes around vectors and blocks, and thread
// counts, which must not change a bit.
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::Bench;

namespace {

const std::vector<std::size_t> sizes = {0, 1, 7, 8, 31, 64, 1023, 1024, 1025, 4096, 4097, 100003};

/// Any bit pattern occasionally, mostly values of ordinary size.
template <typename T>
std::vector<T> random_values(std::size_t n, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<T> values(n);
  for (T& value : values) {
    const bool odd = random() % 8 == 0;
    if constexpr (std::is_same_v<T, double>)
      value = normal(random);
    else if constexpr (std::is_same_v<T, float>)
      value = odd ? std::bit_cast<float>(static_cast<std::uint32_t>(random())) : normal(random);
    else
      value = odd ? T{static_cast<std::uint16_t>(random())} : from_float<T>(normal(random));
  }
  return values;
}

/// Equal bits, or both NaN: the compiler decides which of two payloads a sum keeps.
template <typename T>
std::size_t differences(const std::vector<T>& left, const std::vector<T>& right) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    bool both_nan = false;
    if constexpr (std::is_floating_point_v<T>)
      both_nan = std::isnan(left[i]) && std::isnan(right[i]);
    else
      both_nan = std::isnan(to_float(left[i])) && std::isnan(to_float(right[i]));
    count += !both_nan && std::memcmp(&left[i], &right[i], sizeof(T)) != 0;
  }
  return count;
}

/// Calls check(Bench&, n, random) for sizes and thread counts.
template <typename Check>
void for_all_sizes(Check&& check) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    Bench bench(threads);
    for (const std::size_t n : sizes) {
      CAPTURE(n);
      check(bench, n, random);
    }
  }
}

}  // namespace

TEST_CASE("copy and fill_zero touch their bytes and no others") {
  for_all_sizes([](Bench& bench, std::size_t n, std::mt19937_64& random) {
    std::vector<std::uint8_t> from(n + 2), to(n + 2, 9);
    for (auto& byte : from) byte = static_cast<std::uint8_t>(random());
    const auto source = bench.place(from), there = bench.place(to);
    copy(*bench.stream, there.data() + 1, source.data() + 1, n);
    to = there.read();
    CHECK(std::memcmp(to.data() + 1, from.data() + 1, n) == 0);
    CHECK(to.front() == 9);
    CHECK(to.back() == 9);
    fill_zero(*bench.stream, there.data() + 1, n);
    to = there.read();
    CHECK(std::count(to.begin(), to.end(), 0) == static_cast<std::ptrdiff_t>(n));
  });
}

TEST_CASE_TEMPLATE("cast to any type is from_float of to_float", From, float, Bf16, F16) {
  for_all_sizes([](Bench& bench, std::size_t n, std::mt19937_64& random) {
    const auto from = random_values<From>(n, random);
    const auto check_to = [&]<typename To>(To) {
      std::vector<To> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = from_float<To>(to_float(from[i]));
      const auto source = bench.place(from);
      const auto to = bench.place(std::vector<To>(n));
      cast(*bench.stream, to.data(), dtype_of<To>, source.data(), dtype_of<From>, n);
      CHECK(differences(to.read(), expected) == 0);
    };
    check_to(float{});
    check_to(Bf16{});
    check_to(F16{});
  });
}

TEST_CASE_TEMPLATE("every half-precision pattern casts to float and back", T, Bf16, F16) {
  Bench bench(2);
  std::vector<T> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> expected(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) expected[i] = to_float(all[i]);
  const auto patterns = bench.place(all), back = bench.place(std::vector<T>(all.size()));
  const auto floats = bench.place(std::vector<float>(all.size()));
  cast(*bench.stream, floats.data(), DType::f32, patterns.data(), dtype_of<T>, all.size());
  cast(*bench.stream, back.data(), dtype_of<T>, floats.data(), DType::f32, all.size());
  CHECK(differences(floats.read(), expected) == 0);
  CHECK(differences(back.read(), all) == 0);
}

TEST_CASE_TEMPLATE("scale multiplies in float and rounds once", T, float, Bf16, F16) {
  for_all_sizes([](Bench& bench, std::size_t n, std::mt19937_64& random) {
    auto expected = random_values<T>(n, random);
    const auto values = bench.place(expected);
    for (T& value : expected) value = from_float<T>(to_float(value) * 0.3f);
    scale(*bench.stream, values.data(), dtype_of<T>, 0.3f, n);
    CHECK(differences(values.read(), expected) == 0);
  });
}

TEST_CASE_TEMPLATE("add adds in float and rounds once", T, float, Bf16, F16, double) {
  for_all_sizes([](Bench& bench, std::size_t n, std::mt19937_64& random) {
    auto expected = random_values<T>(n, random);
    const auto terms = random_values<T>(n, random);
    const auto sums = bench.place(expected), added = bench.place(terms);
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, double>)
        expected[i] += terms[i];
      else
        expected[i] = from_float<T>(to_float(expected[i]) + to_float(terms[i]));
    }
    add(*bench.stream, sums.data(), added.data(), dtype_of<T>, n);
    CHECK(differences(sums.read(), expected) == 0);
  });
}

TEST_CASE_TEMPLATE("sums of squares are right and have the same bits for any number of threads and any split", T,
                   float, Bf16, F16) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  std::normal_distribution<float> normal;
  for (const std::size_t n : sizes) {
    CAPTURE(n);
    std::vector<T> values(n);
    double expected = 0;
    for (T& value : values) {
      value = from_float<T>(normal(random));
      expected += static_cast<double>(to_float(value)) * to_float(value);
    }
    const std::size_t blocks = (n + squares_block_elements - 1) / squares_block_elements;
    std::vector<float> first(blocks);
    for (const int threads : {1, 2, 3, 5}) {
      Bench bench(threads);
      const auto placed = bench.place(values);
      const auto sums = bench.place(std::vector<float>(blocks));
      const auto total = bench.place(std::vector<double>{-1});
      // All at once, or this many blocks at a time.
      const std::size_t at_a_time = threads == 1 ? n : static_cast<std::size_t>(threads) * squares_block_elements;
      for (std::size_t begin = 0; begin < n; begin += at_a_time)
        sums_of_squares(*bench.stream, sums.data() + begin / squares_block_elements, placed.data() + begin,
                        dtype_of<T>, std::min(at_a_time, n - begin));
      sum(*bench.stream, total.data(), sums.data(), blocks);
      CHECK(total.read()[0] == doctest::Approx(expected).epsilon(1e-5));
      if (threads == 1) first = sums.read();
      CHECK(sums.read() == first);
    }
  }
}

TEST_CASE_TEMPLATE("parts of arrays with any start are computed like those that start on a cache line", T, float,
                   Bf16, F16) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  constexpr std::size_t n = 1030;
  Bench bench(2);
  const auto compute = [&](const std::vector<T>& values, const std::vector<T>& terms, std::size_t at) {
    const auto placed = bench.place(values), added = bench.place(terms);
    const auto sums = bench.place(std::vector<float>(3)), floats = bench.place(std::vector<float>(values.size()));
    scale(*bench.stream, placed.data() + at, dtype_of<T>, 0.7f, n);
    add(*bench.stream, placed.data() + at, added.data() + at, dtype_of<T>, n);
    sums_of_squares(*bench.stream, sums.data(), placed.data() + at, dtype_of<T>, n);
    cast(*bench.stream, floats.data() + at, DType::f32, placed.data() + at, dtype_of<T>, n);
    return std::tuple(placed.read(), sums.read(), floats.read());
  };
  const auto values = random_values<T>(n + 8, random), terms = random_values<T>(n + 8, random);
  for (const std::size_t offset : {1, 2, 3, 4, 7}) {
    CAPTURE(offset);
    const auto part = [&](const auto& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(offset);
      return std::vector(first, first + static_cast<std::ptrdiff_t>(n));
    };
    const auto [anywhere, sums, floats] = compute(values, terms, offset);
    const auto [on_line, sums_on_line, floats_on_line] = compute(part(values), part(terms), 0);
    CHECK(differences(part(anywhere), on_line) == 0);
    CHECK(differences(sums, sums_on_line) == 0);
    CHECK(differences(part(floats), floats_on_line) == 0);
    CHECK(differences(std::vector<T>{anywhere[offset - 1], anywhere[offset + n]},
                      std::vector<T>{values[offset - 1], values[offset + n]}) == 0);
  }
}

TEST_CASE_TEMPLATE("infinity and NaN at any index appear in the sum of squares", T, float, Bf16, F16) {
  Bench bench(2);
  for (const std::size_t at : {0, 511, 512, 9999})
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<T> values(10000, from_float<T>(1.0f));
      values[at] = from_float<T>(bad);
      const auto placed = bench.place(values);
      const auto sums = bench.place(std::vector<float>(20));
      const auto sum_of_all = bench.place(std::vector<double>(1));
      sums_of_squares(*bench.stream, sums.data(), placed.data(), dtype_of<T>, values.size());
      sum(*bench.stream, sum_of_all.data(), sums.data(), 20);
      const double total = sum_of_all.read()[0];
      CHECK(std::isnan(total) == std::isnan(bad));
      CHECK(std::isinf(total) == std::isinf(bad));
    }
}

TEST_CASE("types that a kernel does not support are refused at the call") {
  Bench bench(1);
  double value = 0;
  CHECK_THROWS_AS(cast(*bench.stream, &value, DType::f64, &value, DType::f32, 1), Error);
  CHECK_THROWS_AS(scale(*bench.stream, &value, DType::i32, 2, 1), Error);
  CHECK_THROWS_AS(add(*bench.stream, &value, &value, DType::i32, 1), Error);
  float sums = 0;
  CHECK_THROWS_AS(sums_of_squares(*bench.stream, &sums, &value, DType::f64, 1), Error);
}

TEST_CASE_TEMPLATE("elements in runs are computed like contiguous ones", T, float, Bf16, F16) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  Bench bench(3);
  for (const auto& [run, stride, runs, first] :
       {std::array<std::size_t, 4>{1024, 3000, 7, 0}, {512, 640, 90, 300}, {24, 32, 11, 5}, {7, 9, 300, 20}}) {
    CAPTURE(run);
    const std::size_t compact = run * runs - first;
    const StridedLayout in_runs{run, stride, first};
    const auto spread = random_values<T>(stride * runs, random), terms = random_values<T>(compact, random);
    std::vector<T> gathered;
    for (std::size_t x = 0; x < compact; ++x) gathered.push_back(spread[in_runs.at(x)]);

    const auto there = bench.place(spread);
    const auto flat = bench.place(terms), expected = bench.place(terms), flat_spread = bench.place(gathered);
    add(*bench.stream, flat.data(), there.data(), dtype_of<T>, compact, {}, in_runs);
    add(*bench.stream, expected.data(), flat_spread.data(), dtype_of<T>, compact);
    CHECK(differences(flat.read(), expected.read()) == 0);

    const auto rounded = bench.place(std::vector<Bf16>(stride * runs));
    const auto rounded_flat = bench.place(std::vector<Bf16>(compact));
    cast(*bench.stream, rounded.data(), DType::bf16, flat_spread.data(), dtype_of<T>, compact, in_runs, {});
    cast(*bench.stream, rounded_flat.data(), DType::bf16, there.data(), dtype_of<T>, compact, {}, in_runs);
    std::vector<Bf16> from_runs;
    const auto spread_bits = rounded.read();
    for (std::size_t x = 0; x < compact; ++x) from_runs.push_back(spread_bits[in_runs.at(x)]);
    CHECK(differences(from_runs, rounded_flat.read()) == 0);

    // Blocks start with each run; the last run may be shorter.
    const std::size_t of_run = (run + squares_block_elements - 1) / squares_block_elements;
    const std::size_t n = run * (runs - 1) + run / 2;
    const auto at_once = bench.place(std::vector<float>(of_run * runs));
    const auto one_by_one = bench.place(std::vector<float>(of_run * runs));
    sums_of_squares(*bench.stream, at_once.data(), of_run, there.data(), {run, stride}, dtype_of<T>, n);
    for (std::size_t r = 0; r < runs; ++r)
      sums_of_squares(*bench.stream, one_by_one.data() + r * of_run, there.data() + r * stride, dtype_of<T>,
                      std::min(run, n - r * run));
    CHECK(differences(at_once.read(), one_by_one.read()) == 0);

    const auto copied = bench.place(std::vector<T>(run * runs));
    copy_runs(*bench.stream, copied.data(), run * sizeof(T), there.data(), stride * sizeof(T), run * sizeof(T),
              runs);
    std::vector<T> tail(copied.read());
    tail.erase(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(first));
    CHECK(differences(tail, gathered) == 0);
  }
}
