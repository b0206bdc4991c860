// A GPU's kernels on arrays of more than 2^32 elements. A launch has the blocks for all elements, but only the last
// ones run, and must give the results of the same blocks on small arrays.
#include "models/ops/activation.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/emulation/machine.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/reference_dropout.hpp"
#include "tests/models/sparse_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using emulation::OnlyLastBlocks;
using runtime::DType;

namespace {

constexpr std::size_t far = std::size_t{1} << 32;
constexpr DType half = DType::bf16;

/// Calls run(stream, false) for small arrays, then run(stream, true) for large ones, of which only the last blocks are
/// computed.
template <typename Run>
void on_small_and_large(unsigned last_blocks, Run run) {
  on_one_device([&](runtime::StreamView stream) {
    run(stream, false);
    const OnlyLastBlocks last(last_blocks);
    run(stream, true);
  });
}

}  // namespace

TEST_CASE("the last rows of a layer norm of more than 2^32 elements are normalized like rows of a small one") {
  constexpr std::size_t C = 1024, few = 64, rows = far / C + few;
  const TypedArray weight(half, C, 3), bias(half, C, 4), zeros(half, few * C), of_rows(DType::f32, few);
  SmallAndLarge x(TypedArray(half, few * C, 1), rows * C), branch(TypedArray(half, few * C, 2), rows * C),
      y(zeros, rows * C), sum(zeros, rows * C), mean(of_rows, rows), rstd(of_rows, rows), again(zeros, rows * C);
  on_small_and_large(few / 4, [&](runtime::StreamView stream, bool large) {
    const NormShape shape{large ? rows : few, C};
    norm_forward(stream, shape, half,
                 {y(large), mean.floats(large), rstd.floats(large), x(large), weight.data(), bias.data(),
                  branch(large), sum(large)});
    norm_forward(stream, shape, half,
                 {.y = again(large),
                  .mean = mean.floats(large),
                  .rstd = rstd.floats(large),
                  .x = sum(large),
                  .weight = weight.data(),
                  .bias = bias.data(),
                  .again = true});
  });
  for (const SmallAndLarge* const arrays : {&y, &sum, &mean, &rstd, &again}) arrays->check_ends();
}

TEST_CASE("the gradients of the last rows of a layer norm of more than 2^32 elements equal those in a small one") {
  constexpr std::size_t C = 1024, few = 64, rows = far / C + few, blocks = 2;
  const auto workspace_floats = [](std::size_t n) { return norm_workspace_bytes({n, C}) / sizeof(float); };
  const TypedArray weight(half, C, 3);
  SmallAndLarge x(TypedArray(half, few * C, 1), rows * C), dy(TypedArray(half, few * C, 2), rows * C),
      dx(TypedArray(half, few * C), rows * C), mean(TypedArray(DType::f32, few, 4), rows),
      rstd(TypedArray(DType::f32, few, 5), rows), sums(TypedArray(DType::f32, 2 * C), 2 * C),
      workspace(TypedArray(DType::f32, workspace_floats(few)), workspace_floats(rows));
  on_small_and_large(blocks, [&](runtime::StreamView stream, bool large) {
    norm_backward(stream, {large ? rows : few, C}, half,
                  {.dx = dx(large),
                   .sums = sums.floats(large),
                   .dy = dy(large),
                   .x = x(large),
                   .mean = mean.floats(large),
                   .rstd = rstd.floats(large),
                   .weight = weight.data(),
                   .workspace = workspace(large)});
  });
  dx.check_ends();
  sums.check_ends(blocks * 32);  // summed by the last blocks
}

TEST_CASE("the last row of more than 2^32 logits has the loss and the gradient of that row alone") {
  constexpr std::size_t V = 50257, stride = 50304, rows = far / stride + 2;
  SmallAndLarge logits(TypedArray(half, stride, 1), rows * stride);
  const SparseArray targets(DType::i32, rows), row_losses(DType::f64, rows);
  targets.integers()[rows - 1] = 50000;
  double losses[2] = {};
  on_small_and_large(1, [&](runtime::StreamView stream, bool large) {
    const std::size_t first = large ? 0 : rows - 1;
    cross_entropy(stream, {rows - first, V, stride}, half,
                  {.logits = logits(large),
                   .targets = targets.integers() + first,
                   .loss = &losses[large ? 1 : 0],
                   .loss_factor = 0.5,
                   .gradient = true,
                   .gradient_factor = 0.25f,
                   .row_losses = reinterpret_cast<double*>(row_losses.data(first))});
  });
  CHECK(losses[0] > 1);
  CHECK(losses[1] == losses[0]);
  logits.check_ends();
}

TEST_CASE("GELU, its gradient, dropout and a cast compute the last of more than 2^32 activations") {
  constexpr std::size_t n = 2048;  // elements per block
  const TypedArray values(half, n, 1);
  SmallAndLarge x(values, far + n), d(TypedArray(half, n, 2), far + n), y(TypedArray(half, n), far + n);
  on_small_and_large(1, [&](runtime::StreamView stream, bool large) {
    const std::size_t all = large ? far + n : n;
    gelu_forward(stream, half, y(large), x(large), all);
    gelu_backward(stream, half, d(large), x(large), x(large), all);
  });
  for (const SmallAndLarge* const arrays : {&y, &d, &x}) arrays->check_ends();
  on_one_device([](runtime::StreamView stream) {
    const OnlyLastBlocks last(1);
    constexpr std::size_t samples = 3, of_sample = far / 2 + n;
    const SparseArray dropped(half, samples * of_sample);
    TypedArray ones(half, n), kept(half, n);
    for (std::size_t i = 0; i < n; ++i) ones.set(i, 1);
    dropped.put_last(ones);
    const Dropout rule = make_dropout(0.25f, 7, 3, 1, 5);
    for (std::size_t i = 0; i < n; ++i) kept.set(i, dropout_factor(rule, samples - 1, of_sample - n + i));
    dropout(stream, dropped.data(), half, samples, of_sample, rule);
    CHECK(dropped.ends_like(kept, n));
  });
  // This loops over the array with the stride of the complete grid, whose last block has the last elements of `all`.
  const auto device = tests::make_device();
  const auto grid = static_cast<std::size_t>(runtime::cuda::properties(*device).multiprocessors) * 32 * 256;
  const std::size_t all = (far / (8 * grid) + 1) * 8 * grid;
  SmallAndLarge from(values, all), wide(TypedArray(DType::f32, n), all);
  on_small_and_large(1, [&](runtime::StreamView stream, bool large) {
    runtime::cast(stream, wide(large), DType::f32, from(large), half, large ? all : n);
  });
  wide.check_ends(1024);  // elements per block, in floats
}

TEST_CASE("the last of more than 2^32 elements of embeddings read tables of that size, and give them gradients") {
  constexpr std::size_t C = 1024, T = 64, samples = far / C / T + 1, rows = samples * T, V = far / C + 4;
  const EmbeddingShape shape{samples, T, C, V}, small{1, T, C, 2};
  const TypedArray places(half, T * C, 2);
  std::vector<std::int32_t> few_tokens(T);
  few_tokens[T - 1] = 1;
  const SparseArray tokens(DType::i32, rows), order(DType::i32, rows);
  tokens.integers()[rows - 2] = V - 2;
  tokens.integers()[rows - 1] = V - 1;
  SmallAndLarge table(TypedArray(half, 2 * C, 1), V * C), out(TypedArray(half, T * C), rows * C);
  on_small_and_large(1, [&](runtime::StreamView stream, bool large) {
    embedding_forward(stream, large ? shape : small, half,
                      {out(large), large ? tokens.integers() : few_tokens.data(), table(large), places.data()});
  });
  out.check_ends(2 * C);

  const TypedArray gradient(half, 2 * C, 3);
  TypedArray expected(DType::f32, 2 * C);
  const SparseArray d_out(half, rows * C), of_tokens(DType::f32, V * C), of_places(DType::f32, T * C);
  d_out.put_last(gradient);
  order.integers()[rows - 1] = rows - 1;
  on_one_device([&](runtime::StreamView stream) {
    runtime::cast(stream, expected.data(), DType::f32, gradient.data(), half, 2 * C);
    const OnlyLastBlocks last(1);
    embedding_backward(stream, shape, half,
                       {.tokens_gradient = of_tokens.data(),
                        .token_rows = V,
                        .positions_gradient = of_places.data(),
                        .position_rows = T,
                        .d_out = d_out.data(),
                        .tokens = tokens.integers(),
                        .accumulate = true,
                        .order = order.integers(),
                        .in_order = true});
  });
  CHECK(of_tokens.ends_like(expected, C));
  CHECK(of_places.ends_like(expected, 2 * C));
}

TEST_CASE("the last columns of more than 2^32 elements are summed, and the last rows multiplied with a vector") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t m = (std::size_t{1} << 15) + 64, n = std::size_t{1} << 17;
    const SparseArray dy(half, m * n);
    const TypedArray row(half, 32, 1);  // elements per block
    TypedArray expected(DType::f32, 32);
    runtime::cast(stream, expected.data(), DType::f32, row.data(), half, 32);
    dy.put_last(row);
    const SparseArray sums(DType::f32, n);
    const OnlyLastBlocks last(1);
    column_sums(stream, sums.data(), DType::f32, dy.data(), half, m, n, false);
    CHECK(sums.ends_like(expected, 32));
  });
  constexpr std::size_t k = 4096, few = 4, n = far / k + few;
  const TypedArray x(half, k, 2);
  SmallAndLarge a(TypedArray(half, few * k, 1), n * k), y(TypedArray(DType::f32, few), n);
  on_small_and_large(1, [&](runtime::StreamView stream, bool large) {
    matrix_vector(stream, {.m = 1, .n = large ? n : few, .k = k, .transpose_b = true},
                  {.c = y(large), .a = x.data(), .b = a(large), .dtype = half});
  });
  y.check_ends();
}

TEST_CASE("attention computes the last samples of more than 2^32 elements like a few alone, with their gradients") {
  for (const DType dtype : {half, DType::f32}) {
    CAPTURE(to_string(dtype));
    constexpr int T = 64, D = 64, few = 8;
    constexpr std::size_t C = D, of_qkv = T * 3 * C, of_out = T * C;
    constexpr int many = static_cast<int>(far / of_qkv) + few;
    const auto shape_of = [](bool large) {
      return AttentionShape{.samples = large ? many : few, .positions = T, .heads = 1, .channels = D};
    };
    const auto workspace_floats = [&](bool large) {
      return attention_workspace_bytes(shape_of(large), dtype, 1) / sizeof(float) + 1;
    };
    SmallAndLarge qkv(TypedArray(dtype, few * of_qkv, 1), many * of_qkv),
        d_out(TypedArray(dtype, few * of_out, 2), many * of_out),
        out(TypedArray(dtype, few * of_out), many * of_out),
        logsumexp(TypedArray(DType::f32, few * T), std::size_t{many} * T),
        d_qkv(TypedArray(dtype, few * of_qkv), many * of_qkv),
        workspace(TypedArray(DType::f32, workspace_floats(false)), workspace_floats(true));
    on_small_and_large(few, [&](runtime::StreamView stream, bool large) {
      const AttentionArrays arrays{.qkv = qkv(large),
                                   .out = out(large),
                                   .logsumexp = logsumexp.floats(large),
                                   .d_out = d_out(large),
                                   .d_qkv = d_qkv(large),
                                   .workspace = workspace(large)};
      attention_forward(stream, shape_of(large), dtype, arrays);
      attention_backward(stream, shape_of(large), dtype, arrays);
    });
    out.check_ends();
    logsumexp.check_ends();
    d_qkv.check_ends(of_qkv);  // the last sample's means are over 64 rows, 8 per block
  }
}

TEST_CASE("a GPU's plain product supports more rows than a grid has blocks") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t m = 65535 * 64 + 70;
    const SparseArray a(DType::f32, m), c(DType::f32, m);
    TypedArray last_rows(DType::f32, 2, 1), expected(DType::f32, 2);
    for (std::size_t i = 0; i < 2; ++i) expected.set(i, 3 * last_rows[i]);
    a.put_last(last_rows);
    const float factor = 3;
    const OnlyLastBlocks last(1);
    matmul_cuda_plain(stream, {.m = m, .n = 1, .k = 1}, {.c = c.data(), .a = a.data(), .b = &factor});
    CHECK(c.ends_like(expected, 2));
  });
}

TEST_CASE("sizes beyond the limits of a GPU's grid are refused with the limit and a remedy") {
  on_one_device([](runtime::StreamView stream) {
    const AttentionShape shape{.samples = 1, .positions = 65535 * 128 + 1, .heads = 1, .channels = 64};
    CHECK_THROWS_WITH_AS(attention_forward(stream, shape, half, {}),
                         "a GPU kernel supports at most 8388480 rows, not 8388481; use a smaller `sequence_length`",
                         Error);
    CHECK_THROWS_WITH_AS(
        cross_entropy(stream, {std::size_t{1} << 31, 8, 8}, half, {}),
        "a kernel has too many blocks: 2147483648, at most 2147483647; use a smaller `microbatch_size`", Error);
  });
}
