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
#include "tests/models/sparse_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using emulation::OnlyLastBlocks;
using runtime::DType;

namespace {

constexpr std::size_t far = std::size_t{1} << 32;
constexpr DType half = DType::bf16;

float* floats(TypedArray& array) { return reinterpret_cast<float*>(array.data()); }

}  // namespace

TEST_CASE("the last rows of a layer norm of more than 2^32 elements are normalized like rows of a small one") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t C = 1024, near_rows = 64, rows = far / C + near_rows;
    const TypedArray values(half, near_rows * C, 1), branch(half, near_rows * C, 2);
    const TypedArray weight(half, C, 3), bias(half, C, 4);
    TypedArray y(half, values.size()), sum(half, values.size());
    TypedArray mean(DType::f32, near_rows), rstd(DType::f32, near_rows);
    norm_forward(stream, {near_rows, C}, half,
                 {y.data(), floats(mean), floats(rstd), values.data(), weight.data(), bias.data(), branch.data(),
                  sum.data()});
    const SparseArray far_x(half, rows * C), far_branch(half, rows * C), far_y(half, rows * C),
        far_sum(half, rows * C), far_mean(DType::f32, rows), far_rstd(DType::f32, rows);
    far_x.put_last(values);
    far_branch.put_last(branch);
    NormForward arrays{far_y.data(),  far_mean.floats(), far_rstd.floats(), far_x.data(),
                       weight.data(), bias.data(),       far_branch.data(), far_sum.data()};
    {
      const OnlyLastBlocks last(near_rows / 4);
      norm_forward(stream, {rows, C}, half, arrays);
    }
    CHECK(far_y.ends_like(y, y.size()));
    CHECK(far_sum.ends_like(sum, sum.size()));
    CHECK(far_mean.ends_like(mean, near_rows));
    CHECK(far_rstd.ends_like(rstd, near_rows));

    const SparseArray far_again(half, rows * C);
    {
      const OnlyLastBlocks last(near_rows / 4);
      arrays.y = far_again.data();
      arrays.x = far_sum.data();
      arrays.branch = nullptr;
      arrays.again = true;
      norm_forward(stream, {rows, C}, half, arrays);
    }
    CHECK(far_again.ends_like(y, y.size()));
  });
}

TEST_CASE("the gradients of the last rows of a layer norm of more than 2^32 elements equal those in a small one") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t C = 1024, near_rows = 64, rows = far / C + near_rows, blocks = 2;
    const TypedArray x(half, near_rows * C, 1), dy(half, near_rows * C, 2), weight(half, C, 3);
    TypedArray mean(DType::f32, near_rows, 4), rstd(DType::f32, near_rows, 5);
    TypedArray dx(half, x.size()), sums(DType::f32, 2 * C);
    std::vector<std::byte> workspace(norm_workspace_bytes({near_rows, C}));
    norm_backward(stream, {near_rows, C}, half,
                  {.dx = dx.data(),
                   .sums = floats(sums),
                   .dy = dy.data(),
                   .x = x.data(),
                   .mean = floats(mean),
                   .rstd = floats(rstd),
                   .weight = weight.data(),
                   .workspace = workspace.data()});
    const SparseArray far_x(half, rows * C), far_dy(half, rows * C), far_dx(half, rows * C),
        far_mean(DType::f32, rows), far_rstd(DType::f32, rows),
        far_workspace(DType::f32, norm_workspace_bytes({rows, C}) / sizeof(float));
    far_x.put_last(x);
    far_dy.put_last(dy);
    far_mean.put_last(mean);
    far_rstd.put_last(rstd);
    TypedArray far_sums(DType::f32, 2 * C);
    {
      const OnlyLastBlocks last(blocks);
      norm_backward(stream, {rows, C}, half,
                    {.dx = far_dx.data(),
                     .sums = floats(far_sums),
                     .dy = far_dy.data(),
                     .x = far_x.data(),
                     .mean = far_mean.floats(),
                     .rstd = far_rstd.floats(),
                     .weight = weight.data(),
                     .workspace = far_workspace.data()});
    }
    CHECK(far_dx.ends_like(dx, dx.size()));
    constexpr std::size_t columns = blocks * 32;  // summed by the last blocks
    CHECK(same_bits(far_sums, 2 * C - columns, sums, 2 * C - columns, columns));
  });
}

TEST_CASE("the last row of more than 2^32 logits has the loss and the gradient of that row alone") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t V = 50257, stride = 50304, rows = far / stride + 2;
    const TypedArray row(half, stride, 1);
    TypedArray gradient = row;
    std::int32_t target = 50000;
    double loss = 0, far_loss = 0, row_loss = 0;
    CrossEntropyArrays arrays{.logits = gradient.data(),
                              .targets = &target,
                              .loss = &loss,
                              .loss_factor = 0.5,
                              .gradient = true,
                              .gradient_factor = 0.25f,
                              .row_losses = &row_loss};
    cross_entropy(stream, {1, V, stride}, half, arrays);

    const SparseArray logits(half, rows * stride), targets(DType::i32, rows), row_losses(DType::f64, rows);
    logits.put_last(row);
    targets.integers()[rows - 1] = target;
    arrays.logits = logits.data();
    arrays.targets = targets.integers();
    arrays.loss = &far_loss;
    arrays.row_losses = reinterpret_cast<double*>(row_losses.data());
    {
      const OnlyLastBlocks last(1);
      cross_entropy(stream, {rows, V, stride}, half, arrays);
    }
    CHECK(loss > 1);
    CHECK(far_loss == loss);
    CHECK(logits.ends_like(gradient, stride));
  });
}

TEST_CASE("GELU, its gradient, dropout and a cast compute the last of more than 2^32 activations") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t n = 2048;  // elements per block
    const TypedArray x(half, n, 1), d(half, n, 2);
    TypedArray y(half, n), near_x = x, near_d = d;
    gelu_forward(stream, half, y.data(), x.data(), n);
    gelu_backward(stream, half, near_d.data(), near_x.data(), near_x.data(), n);
    {
      const OnlyLastBlocks last(1);
      const SparseArray far_x(half, far + n), far_y(half, far + n), far_d(half, far + n);
      far_x.put_last(x);
      far_d.put_last(d);
      gelu_forward(stream, half, far_y.data(), far_x.data(), far + n);
      CHECK(far_y.ends_like(y, n));
      gelu_backward(stream, half, far_d.data(), far_x.data(), far_x.data(), far + n);
      CHECK(far_d.ends_like(near_d, n));
      CHECK(far_x.ends_like(near_x, n));
    }
    {
      const OnlyLastBlocks last(1);
      constexpr std::size_t samples = 3, of_sample = far / 2 + n;
      const SparseArray values(half, samples * of_sample);
      TypedArray ones(half, n), kept(half, n);
      for (std::size_t i = 0; i < n; ++i) ones.set(i, 1);
      values.put_last(ones);
      const Dropout rule = make_dropout(0.25f, 7, 3, 1, 5);
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t element = of_sample - n + i;
        const bool keeps = runtime::uniform(dropout_bits(rule, samples - 1, element / 4)[element % 4]) >= rule.rate;
        kept.set(i, keeps ? static_cast<double>(rule.kept_scale()) : 0.0);
      }
      dropout(stream, values.data(), half, samples, of_sample, rule);
      CHECK(values.ends_like(kept, n));
    }
    // This loops over the array with the stride of the complete grid, whose last block has the last elements of `all`.
    const auto grid =
        static_cast<std::size_t>(runtime::cuda::properties(stream.device()).multiprocessors) * 32 * 256;
    const std::size_t all = (far / (8 * grid) + 1) * 8 * grid;
    const SparseArray from(half, all), wide(DType::f32, all);
    from.put_last(x);
    TypedArray near_wide(DType::f32, n);
    runtime::cast(stream, near_wide.data(), DType::f32, x.data(), half, n);
    const OnlyLastBlocks last(1);
    runtime::cast(stream, wide.data(), DType::f32, from.data(), half, all);
    CHECK(wide.ends_like(near_wide, 1024));  // elements per block, in floats
  });
}

TEST_CASE("the last of more than 2^32 elements of embeddings read tables of that size, and give them gradients") {
  on_one_device([](runtime::StreamView stream) {
    constexpr std::size_t C = 1024, T = 64, samples = far / C / T + 1, rows = samples * T, V = far / C + 4;
    const EmbeddingShape shape{samples, T, C, V}, small{1, T, C, 2};
    const TypedArray words(half, 2 * C, 1), places(half, T * C, 2);
    std::vector<std::int32_t> near_tokens(T);
    near_tokens[T - 1] = 1;
    TypedArray near(half, T * C);
    embedding_forward(stream, small, half, {near.data(), near_tokens.data(), words.data(), places.data()});

    const SparseArray out(half, rows * C), table(half, V * C), tokens(DType::i32, rows), order(DType::i32, rows);
    table.put_last(words);
    tokens.integers()[rows - 2] = V - 2;
    tokens.integers()[rows - 1] = V - 1;
    const TypedArray gradient(half, 2 * C, 3);
    TypedArray expected(DType::f32, 2 * C);
    runtime::cast(stream, expected.data(), DType::f32, gradient.data(), half, 2 * C);
    const OnlyLastBlocks last(1);
    embedding_forward(stream, shape, half, {out.data(), tokens.integers(), table.data(), places.data()});
    CHECK(out.ends_like(near, 2 * C));

    out.put_last(gradient);
    order.integers()[rows - 1] = rows - 1;
    const SparseArray of_tokens(DType::f32, V * C), of_places(DType::f32, T * C);
    embedding_backward(stream, shape, half,
                       {.tokens_gradient = of_tokens.data(),
                        .token_rows = V,
                        .positions_gradient = of_places.data(),
                        .position_rows = T,
                        .d_out = out.data(),
                        .tokens = tokens.integers(),
                        .accumulate = true,
                        .order = order.integers(),
                        .in_order = true});
    CHECK(of_tokens.ends_like(expected, C));
    CHECK(of_places.ends_like(expected, 2 * C));
  });
}

TEST_CASE("the last columns of more than 2^32 elements are summed, and the last rows multiplied with a vector") {
  on_one_device([](runtime::StreamView stream) {
    {
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
    }
    constexpr std::size_t k = 4096, near_rows = 4, n = far / k + near_rows;
    const TypedArray rows(half, near_rows * k, 1), x(half, k, 2);
    TypedArray near(DType::f32, near_rows);
    matrix_vector(stream, {.m = 1, .n = near_rows, .k = k, .transpose_b = true},
                  {.c = near.data(), .a = x.data(), .b = rows.data(), .dtype = half});
    const SparseArray a(half, n * k), y(DType::f32, n);
    a.put_last(rows);
    const OnlyLastBlocks last(1);
    matrix_vector(stream, {.m = 1, .n = n, .k = k, .transpose_b = true},
                  {.c = y.data(), .a = x.data(), .b = a.data(), .dtype = half});
    CHECK(y.ends_like(near, near_rows));
  });
}

TEST_CASE("attention computes the last samples of more than 2^32 elements like a few alone, with their gradients") {
  on_one_device([](runtime::StreamView stream) {
    for (const DType dtype : {half, DType::f32}) {
      CAPTURE(to_string(dtype));
      constexpr int T = 64, D = 64, few = 8;
      constexpr std::size_t C = D, of_qkv = T * 3 * C, of_out = T * C;
      constexpr int many = static_cast<int>(far / of_qkv) + few;
      const AttentionShape near{.samples = few, .positions = T, .heads = 1, .channels = D};
      const AttentionShape all{.samples = many, .positions = T, .heads = 1, .channels = D};
      const TypedArray qkv(dtype, few * of_qkv, 1), d_out(dtype, few * of_out, 2);
      TypedArray out(dtype, few * of_out), logsumexp(DType::f32, few * T), d_qkv(dtype, few * of_qkv),
          workspace(DType::f32, attention_workspace_bytes(near, dtype, 1) / sizeof(float) + 1);
      const AttentionArrays arrays{.qkv = qkv.data(),
                                   .out = out.data(),
                                   .logsumexp = floats(logsumexp),
                                   .d_out = d_out.data(),
                                   .d_qkv = d_qkv.data(),
                                   .workspace = workspace.data()};
      attention_forward(stream, near, dtype, arrays);
      attention_backward(stream, near, dtype, arrays);

      const SparseArray far_qkv(dtype, many * of_qkv), far_out(dtype, many * of_out),
          far_d_out(dtype, many * of_out), far_d_qkv(dtype, many * of_qkv),
          far_logsumexp(DType::f32, std::size_t{many} * T),
          far_workspace(DType::f32, attention_workspace_bytes(all, dtype, 1) / sizeof(float) + 1);
      far_qkv.put_last(qkv);
      far_d_out.put_last(d_out);
      const OnlyLastBlocks last(few);
      const AttentionArrays far_arrays{.qkv = far_qkv.data(),
                                       .out = far_out.data(),
                                       .logsumexp = far_logsumexp.floats(),
                                       .d_out = far_d_out.data(),
                                       .d_qkv = far_d_qkv.data(),
                                       .workspace = far_workspace.data()};
      attention_forward(stream, all, dtype, far_arrays);
      CHECK(far_out.ends_like(out, out.size()));
      CHECK(far_logsumexp.ends_like(logsumexp, logsumexp.size()));
      attention_backward(stream, all, dtype, far_arrays);
      CHECK(far_d_qkv.ends_like(d_qkv, of_qkv));  // the last sample's means are over 64 rows, 8 per block
    }
  });
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
