// A few distant rows, in arrays of more than 2^32 elements: operations that support such rows find them on any device.
#include "models/ops/cached_attention.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/kernels/adamw.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_matmul.hpp"
#include "tests/models/sparse_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::size_t far = std::size_t{1} << 32;

}  // namespace

TEST_CASE("a product supports rows at a distance of 2^28 elements") {
  constexpr std::size_t m = 21, n = 24, k = 19, stride = (std::size_t{1} << 28) + 64;
  for (const bool transposed : {false, true}) {
    CAPTURE(transposed);
    const std::size_t a_rows = transposed ? k : m, a_columns = transposed ? m : k;
    const std::size_t b_rows = transposed ? n : k, b_columns = transposed ? k : n;
    const TypedArray a(DType::f32, m * k, 1), b(DType::f32, k * n, 2);
    const SparseArray far_a(DType::f32, a_rows * stride), far_b(DType::f32, b_rows * stride);
    const SparseArray far_c(DType::f32, m * stride);
    for (std::size_t i = 0; i < a_rows; ++i)
      std::memcpy(far_a.data(i * stride), a.data(i * a_columns), 4 * a_columns);
    for (std::size_t i = 0; i < b_rows; ++i)
      std::memcpy(far_b.data(i * stride), b.data(i * b_columns), 4 * b_columns);
    const TypedArray bias(DType::f32, n, 3);
    on_one_device([&](runtime::StreamView stream) {
      matmul(stream,
             {.m = m,
              .n = n,
              .k = k,
              .transpose_a = transposed,
              .transpose_b = transposed,
              .a_stride = stride,
              .b_stride = stride,
              .c_stride = stride},
             {.c = far_c.data(), .a = far_a.data(), .b = far_b.data(), .bias = bias.data()});
      stream.synchronize();
    });
    const Expected expected =
        plain_matmul({.m = m, .n = n, .k = k, .transpose_a = transposed, .transpose_b = transposed}, a, b, &bias,
                     nullptr, DType::f32);
    double error = 0;
    for (std::size_t i = 0; i < m * n; ++i)
      error =
          worse(error, std::abs(expected.value[i] - static_cast<double>(far_c.floats()[i / n * stride + i % n])));
    CHECK(error < 1e-5);
  }
}

TEST_CASE("products beyond the limits of library calls are complete") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t many = 2200000, few = 2;
    for (const bool rows_are_many : {true, false}) {
      CAPTURE(rows_are_many);
      const std::size_t m = rows_are_many ? many : few, k = rows_are_many ? few : many;
      TypedArray a(DType::f32, m * k), b(DType::f32, k * few), c(DType::f32, m * few), bias(DType::f32, few);
      for (std::size_t i = 0; i < few; ++i) bias.set(i, 1000);
      const auto of = [](TypedArray& array) { return reinterpret_cast<float*>(array.data()); };
      // Small integers, few of which are not zero: sums are exact in any order.
      for (std::size_t i = 0; i < m * k; i += 1000) of(a)[i] = static_cast<float>(i / 1000 % 7);
      for (std::size_t i = 0; i < k * few; ++i) of(b)[i] = static_cast<float>(i % 5);
      matmul(stream, {m, few, k}, {.c = c.data(), .a = a.data(), .b = b.data(), .bias = bias.data()});
      stream.synchronize();
      std::vector<float> expected(m * few, 1000);
      for (std::size_t i = 0; i < m * k; i += 1000)
        for (std::size_t j = 0; j < few; ++j) expected[i / k * few + j] += of(a)[i] * of(b)[i % k * few + j];
      CHECK(std::memcmp(c.data(), expected.data(), c.bytes()) == 0);
    }
  });
}

TEST_CASE("logits of rows at a distance of 2^32 elements have their losses") {
  constexpr std::size_t V = 50, rows = 2;
  const TypedArray near(DType::f32, rows * V, 1);
  const SparseArray logits(DType::f32, rows * far), exponentials(DType::f32, far);
  for (std::size_t row = 0; row < rows; ++row) std::memcpy(logits.data(row * far), near.data(row * V), 4 * V);
  const std::int32_t targets[rows] = {3, 47};
  double row_losses[rows], far_row_losses[rows], loss = 0;
  on_one_device([&](runtime::StreamView stream) {
    TypedArray copy = near;
    CrossEntropyArrays arrays{.logits = copy.data(),
                              .targets = targets,
                              .loss = &loss,
                              .row_losses = row_losses,
                              .exponentials = exponentials.floats()};
    cross_entropy(stream, {rows, V, V}, DType::f32, arrays);
    arrays.logits = logits.data();
    arrays.row_losses = far_row_losses;
    cross_entropy(stream, {rows, V, far}, DType::f32, arrays);
    stream.synchronize();
  });
  for (std::size_t row = 0; row < rows; ++row) CHECK(far_row_losses[row] == doctest::Approx(row_losses[row]));
}

TEST_CASE("the last row of a table of more than 2^32 elements is found, and gets its gradient") {
  constexpr std::size_t C = 1024, V = far / C + 4;
  const TypedArray word(DType::bf16, C, 1), place(DType::bf16, C, 2);
  const SparseArray table(DType::bf16, V * C), gradient(DType::f32, V * C);
  table.put_last(word);
  const auto token = static_cast<std::int32_t>(V - 1);
  TypedArray out(DType::bf16, C), expected(DType::f32, C);
  std::int32_t order = 0;
  on_one_device([&](runtime::StreamView stream) {
    embedding_forward(stream, {1, 1, C, V}, DType::bf16, {out.data(), &token, table.data(), place.data()});
    embedding_backward(stream, {1, 1, C, V}, DType::bf16,
                       {.tokens_gradient = gradient.data(),
                        .token_rows = V,
                        .d_out = word.data(),
                        .tokens = &token,
                        .accumulate = true,
                        .order = &order});
    stream.synchronize();
  });
  for (std::size_t c = 0; c < C; ++c) {
    CHECK(std::abs(out[c] - (word[c] + place[c])) <= half_unit(DType::bf16) * std::abs(word[c] + place[c]) + 1e-30);
    expected.set(c, word[c]);
  }
  CHECK(gradient.ends_like(expected, C));
}

TEST_CASE("the gradient of more positions than its order supports is refused with a remedy") {
  on_one_device([](runtime::StreamView stream) {
    CHECK_THROWS_WITH_AS(
        embedding_backward(stream, {1 << 11, (1 << 19) + 1, 8, 8}, DType::f32, {}),
        "the embedding's gradient supports 1073741824 positions per microbatch, not 1073743872; use a smaller "
        "`microbatch_size`",
        Error);
  });
}

TEST_CASE("a cache of more than 2^32 elements is filled and attended to") {
  constexpr int heads = 2, D = 64, past = 3, queries = 2;
  const CachedAttentionShape near{{.positions = queries, .heads = heads, .channels = D}, past, past + queries};
  CachedAttentionShape all = near;
  all.capacity = 1 << 26;
  const TypedArray qkv(DType::bf16, queries * 3 * heads * D, 1), earlier(DType::bf16, past * D, 2);
  TypedArray keys(DType::bf16, std::size_t{heads} * near.capacity * D), values = keys;
  const SparseArray far_keys(DType::bf16, std::size_t{heads} * all.capacity * D);
  const SparseArray far_values(DType::bf16, far_keys.size());
  for (std::size_t h = 0; h < heads; ++h) {
    std::memcpy(keys.data(h * near.capacity * D), earlier.data(), earlier.bytes());
    std::memcpy(values.data(h * near.capacity * D), earlier.data(), earlier.bytes());
    far_keys.put(h * all.capacity * D, earlier);
    far_values.put(h * all.capacity * D, earlier);
  }
  const SparseArray workspace(DType::f32, cached_attention_workspace_bytes(all, 1) / sizeof(float));
  TypedArray out(DType::bf16, queries * heads * D), far_out = out;
  on_one_device([&](runtime::StreamView stream) {
    append_to_cache(stream, near, DType::bf16, keys.data(), values.data(), qkv.data());
    cached_attention(stream, near, DType::bf16, out.data(), keys.data(), values.data(), qkv.data(),
                     workspace.data());
    append_to_cache(stream, all, DType::bf16, far_keys.data(), far_values.data(), qkv.data());
    cached_attention(stream, all, DType::bf16, far_out.data(), far_keys.data(), far_values.data(), qkv.data(),
                     workspace.data());
    stream.synchronize();
  });
  CHECK(same_bits(out, far_out));
}

TEST_CASE("the optimizer updates elements beyond 2^32") {
  constexpr std::size_t n = 1000;
  const TypedArray zeros(DType::f32, n);
  SmallAndLarge weights(TypedArray(DType::f32, n, 1), far + n), m(zeros, far + n), v(zeros, far + n),
      gradient(TypedArray(DType::f32, n, 2), far + n);
  on_one_device([&](runtime::StreamView stream) {
    for (const bool large : {false, true}) {
      const std::size_t first = large ? far : 0;
      runtime::adamw(stream, {weights.floats(large), m.floats(large), v.floats(large), gradient(large)},
                     {{first, first + n, true}}, {.learning_rate = 0.1});
    }
    stream.synchronize();
  });
  for (const SmallAndLarge* const arrays : {&weights, &m, &v}) arrays->check_ends();
}
