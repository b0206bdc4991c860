#include "models/ops/activation.hpp"
#include "models/ops/batch_norm.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/patches.hpp"
#include "models/ops/pooling.hpp"
#include "models/ops/rotary.hpp"
#include "models/ops/target_rows.hpp"
#include "tests/models/costed_run.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;
using runtime::ProductShape;
using runtime::StreamView;
using runtime::WorkCost;
using runtime::WorkKind;
using tests::CostedRun;

namespace {

const CostedRun::Address none;

using Operation = std::function<void(StreamView, CostedRun&, DType)>;

/// Checks the cost in every dtype. Only products have operations and a shape.
void check_costs(WorkKind kind, const Operation& operation, const ProductShape& shape = {}) {
  for (const DType dtype : float_types) {
    CAPTURE(to_string(dtype));
    const WorkCost cost =
        CostedRun(dtype).check(kind, [&](StreamView stream, CostedRun& run) { operation(stream, run, dtype); });
    CHECK(cost.shape == shape);
    CHECK(cost.flops == 2.0 * static_cast<double>(shape.m * shape.n * shape.k));
    if (kind == WorkKind::product || kind == WorkKind::activation) CHECK(cost.dtype == dtype);
  }
}

}  // namespace

TEST_CASE("a product costs its operations and its arrays") {
  constexpr std::size_t M = 5, N = 7, K = 3;
  const ProductShape shape{M, N, K};
  for (const bool half_result : {false, true})
    for (const bool accumulate : {false, true})
      check_costs(
          WorkKind::product,
          [&](StreamView stream, CostedRun& run, DType dtype) {
            const DType to = half_result ? dtype : DType::f32;
            matmul(stream, {.m = M, .n = N, .k = K},
                   {.c = accumulate ? run.changes(M * N, to) : run.writes(M * N, to),
                    .c_dtype = to,
                    .a = run.reads(M * K),
                    .b = run.reads(K * N),
                    .dtype = dtype,
                    .accumulate = accumulate});
          },
          shape);
  check_costs(
      WorkKind::product,
      [&](StreamView stream, CostedRun& run, DType dtype) {
        matmul(stream, {.m = M, .n = N, .k = K, .transpose_a = true, .transpose_b = true},
               {.c = run.writes(M * N),
                .c_dtype = dtype,
                .a = run.reads(M * K),
                .b = run.reads(K * N),
                .dtype = dtype,
                .bias = run.reads(N)});
      },
      shape);
}

TEST_CASE("a matrix times a vector costs as much as a product of one row") {
  constexpr std::size_t N = 7, K = 9;
  for (const bool biased : {false, true})
    check_costs(WorkKind::product,
                [&](StreamView stream, CostedRun& run, DType dtype) {
                  matrix_vector(stream, {.m = 1, .n = N, .k = K, .transpose_b = true},
                                {.c = run.writes(N, DType::f32),
                                 .c_dtype = DType::f32,
                                 .a = run.reads(K),
                                 .b = run.reads(N * K),
                                 .dtype = dtype,
                                 .bias = biased ? run.reads(N) : none});
                },
                {1, N, K});
}

TEST_CASE("sums of columns cost their rows") {
  constexpr std::size_t M = 6, N = 11;
  for (const bool accumulate : {false, true})
    check_costs(WorkKind::elementwise, [&](StreamView stream, CostedRun& run, DType dtype) {
      column_sums(stream, accumulate ? run.changes(N, DType::f32) : run.writes(N, DType::f32), DType::f32,
                  run.reads(M * N), dtype, M, N, accumulate);
    });
}

TEST_CASE("an activation costs the bytes that it reads and writes") {
  constexpr std::size_t N = 5, F = 7;
  const auto check = [](const Operation& operation) { check_costs(WorkKind::activation, operation); };
  for (const GeluForm form : {GeluForm::tanh, GeluForm::erf}) {
    check([&](StreamView stream, CostedRun& run, DType dtype) {
      gelu_forward(stream, dtype, run.writes(N), run.reads(N), N, form);
    });
    check([&](StreamView stream, CostedRun& run, DType dtype) {
      const auto again = run.changes(N);
      gelu_backward(stream, dtype, run.changes(N), again, again, N, form);
    });
    check([&](StreamView stream, CostedRun& run, DType dtype) {
      gelu_backward(stream, dtype, run.changes(N), run.reads(N), nullptr, N, form);
    });
  }
  check([](StreamView stream, CostedRun& run, DType dtype) {
    swiglu_forward(stream, dtype, run.writes(N * F), run.reads(N * 2 * F), N, F);
  });
  check([](StreamView stream, CostedRun& run, DType dtype) {
    const auto d = run.changes(N * F);
    swiglu_backward(stream, dtype, d, run.changes(N * 2 * F), d, N, F);
  });
  check([](StreamView stream, CostedRun& run, DType dtype) {
    swiglu_backward(stream, dtype, run.reads(N * F), run.changes(N * 2 * F), nullptr, N, F);
  });
}

TEST_CASE("dropout costs its elements twice, and a rate of zero costs and changes nothing") {
  check_costs(WorkKind::dropout, [&](StreamView stream, CostedRun& run, DType dtype) {
    dropout(stream, run.changes(3 * 7), dtype, 3, 7, make_dropout(0.5f, 1, 2, 3, 4));
  });
  tests::RecordingDevice device;
  const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
  float x = 1;
  dropout(*stream, &x, DType::f32, 1, 1, make_dropout(0, 1, 2, 3, 0));
  CHECK(device.work().empty());
  CHECK(x == 1);
}

TEST_CASE("layer and RMS normalization cost their groups and their saved values") {
  for (const NormShape& shape : {NormShape{.rows = 3, .channels = 9},
                                 NormShape{.rows = 3, .channels = 5, .kind = NormKind::rms, .groups = 2}}) {
    const std::size_t C = shape.channels, groups = shape.rows * shape.groups, all = groups * C;
    const bool layer = shape.kind == NormKind::layer;
    for (const bool with_more : {false, true}) {
      check_costs(WorkKind::norm, [&](StreamView stream, CostedRun& run, DType dtype) {
        norm_forward(stream, shape, dtype,
                     {.y = run.writes(all),
                      .mean = layer ? run.writes(groups, DType::f32) : none,
                      .rstd = run.writes(groups, DType::f32),
                      .x = run.reads(all),
                      .weight = run.reads(C),
                      .bias = layer ? run.reads(C) : none,
                      .branch = with_more ? run.reads(all) : none,
                      .sum = with_more ? run.writes(all) : none});
      });
      check_costs(WorkKind::norm, [&](StreamView stream, CostedRun& run, DType dtype) {
        norm_backward(stream, shape, dtype,
                      {.dx = run.writes(all),
                       .sums = run.writes(shape.parameters(), DType::f32),
                       .dy = run.reads(all),
                       .x = run.reads(all),
                       .mean = layer ? run.reads(groups, DType::f32) : none,
                       .rstd = run.reads(groups, DType::f32),
                       .weight = run.reads(C),
                       .residual = with_more ? run.reads(all) : none,
                       .workspace = run.workspace(norm_workspace_bytes(shape))});
      });
    }
    check_costs(WorkKind::norm, [&](StreamView stream, CostedRun& run, DType dtype) {
      norm_forward(stream, shape, dtype,
                   {.y = run.writes(all),
                    .mean = layer ? run.reads(groups, DType::f32) : none,
                    .rstd = run.reads(groups, DType::f32),
                    .x = run.reads(all),
                    .weight = run.reads(C),
                    .bias = layer ? run.reads(C) : none,
                    .again = true});
    });
  }
}

TEST_CASE("storing a gradient costs its sums and the gradient") {
  constexpr std::size_t C = 9;
  for (const bool accumulate : {false, true})
    check_costs(WorkKind::elementwise, [&](StreamView stream, CostedRun& run, DType dtype) {
      store_gradient(stream, accumulate ? run.changes(C) : run.writes(C), dtype, run.reads(C, DType::f32), C,
                     accumulate);
    });
}

TEST_CASE("batch normalization costs its rows and their statistics") {
  constexpr std::size_t N = 5, C = 7;
  const BatchNormShape shape{.rows = N, .channels = C};
  const std::size_t work = batch_norm_workspace_bytes(shape);
  check_costs(WorkKind::batch_norm, [&](StreamView stream, CostedRun& run, DType dtype) {
    batch_norm_statistics(stream, shape, dtype, run.writes(3 * C, DType::f32), run.reads(N * C),
                          run.workspace(work));
  });
  check_costs(WorkKind::batch_norm, [&](StreamView stream, CostedRun& run, DType dtype) {
    batch_norm_fixed_statistics(stream, shape, dtype, run.writes(3 * C, DType::f32), run.reads(C), run.reads(C));
  });
  for (const bool added : {false, true}) {
    const auto values = [&](CostedRun& run) {
      return BatchNormValues{.x = run.reads(N * C),
                             .statistics = run.reads(3 * C, DType::f32),
                             .weight = run.reads(C),
                             .bias = run.reads(C),
                             .addend = added ? run.reads(N * C) : none,
                             .relu = true};
    };
    check_costs(WorkKind::batch_norm, [&](StreamView stream, CostedRun& run, DType dtype) {
      batch_norm_forward(stream, shape, dtype, run.writes(N * C), values(run));
    });
    check_costs(WorkKind::batch_norm, [&](StreamView stream, CostedRun& run, DType dtype) {
      batch_norm_backward(stream, shape, dtype,
                          {.dx = run.writes(N * C),
                           .d_addend = added ? run.writes(N * C) : none,
                           .sums = run.writes(2 * C, DType::f32),
                           .dy = run.reads(N * C),
                           .workspace = run.workspace(work)},
                          values(run));
    });
  }
}

TEST_CASE("images cost their pixels and their patches") {
  constexpr std::size_t B = 2, H = 5, W = 4, C = 3, K = 3, P = 3, Q = 2;  // stride 2, with a margin of one
  constexpr std::size_t image = B * H * W * C, pooled = B * P * Q * C, patches = pooled * K * K;
  const PatchShape shape{
      .samples = B, .height = H, .width = W, .channels = C, .kernel = K, .stride = 2, .padding = 1};
  REQUIRE(shape.rows() == B * P * Q);
  const auto check = [](const Operation& operation) { check_costs(WorkKind::patches, operation); };
  check([&](StreamView stream, CostedRun& run, DType dtype) {
    gather_patches(stream, shape, dtype, run.writes(patches), run.reads(image));
  });
  check([&](StreamView stream, CostedRun& run, DType dtype) {
    add_patches(stream, shape, dtype, run.writes(image), run.reads(patches, DType::f32));
  });
  check([&](StreamView stream, CostedRun& run, DType dtype) {
    max_pool_forward(stream, shape, dtype, run.writes(pooled), run.writes_bytes(pooled), run.reads(image));
  });
  check([&](StreamView stream, CostedRun& run, DType dtype) {
    max_pool_backward(stream, shape, dtype, run.writes(image), run.reads(pooled), run.reads_bytes(pooled));
  });
}

TEST_CASE("images cost their pixels and their means") {
  constexpr std::size_t B = 2, pixels = 7, C = 3;
  const MeanPoolShape shape{.samples = B, .pixels = pixels, .channels = C};
  check_costs(WorkKind::patches, [&](StreamView stream, CostedRun& run, DType dtype) {
    mean_pool_forward(stream, shape, dtype, run.writes(B * C), run.reads(B * pixels * C));
  });
  check_costs(WorkKind::patches, [&](StreamView stream, CostedRun& run, DType dtype) {
    mean_pool_backward(stream, shape, dtype, run.writes(B * pixels * C), run.reads(B * C));
  });
  check_costs(WorkKind::patches, [&](StreamView stream, CostedRun& run, DType dtype) {
    read_pixels(stream, B, pixels, dtype, run.writes(B * pixels * colours), run.reads_bytes(B * colours * pixels));
  });
}

TEST_CASE("rotary positions cost the rotated channels") {
  constexpr std::size_t B = 2, T = 3, G = 3, D = 4, row = 16;
  RotaryShape shape{.samples = B, .positions = T, .heads = G, .row_channels = G * D};
  check_costs(WorkKind::rotary, [&](StreamView stream, CostedRun& run, DType dtype) {
    rotary(stream, shape, dtype, run.changes(B * T * G * D), rotary_frequencies(D, 100), Rotation::forward,
           run.reads_integers(B * T, T));
  });
  // Neighboring elements are not accessed.
  shape.row_channels = row;
  for (const DType dtype : float_types) {
    TypedArray wide(dtype, B * T * row, 1);
    tests::RecordingDevice device;
    const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
    rotary(*stream, shape, dtype, wide.data(), rotary_frequencies(D, 100), Rotation::inverse);
    REQUIRE(device.work().size() == 1);
    CHECK(device.work()[0].cost.bytes == 2.0 * B * T * G * D * static_cast<double>(size_of(dtype)));
  }
}

TEST_CASE("an embedding costs the rows that it looks up, or adds to") {
  constexpr std::size_t B = 2, T = 3, C = 5, V = 11, N = B * T;
  const EmbeddingShape shape{.samples = B, .positions = T, .channels = C, .vocab_size = V};
  for (const bool placed : {false, true}) {
    const auto positions = [&](CostedRun& run) { return placed ? run.reads_integers(N, T) : none; };
    check_costs(WorkKind::embedding, [&](StreamView stream, CostedRun& run, DType dtype) {
      embedding_forward(stream, shape, dtype,
                        {.out = run.writes(N * C),
                         .tokens = run.reads_integers(N, V, 3),
                         .tokens_table = run.reads_of(V * C, N * C),
                         .positions_table = run.reads(T * C),
                         .positions = positions(run)});
    });
    check_costs(WorkKind::embedding, [&](StreamView stream, CostedRun& run, DType dtype) {
      embedding_forward(
          stream, shape, dtype,
          {.out = run.changes(N * C), .positions_table = run.reads(T * C), .positions = positions(run)});
    });
  }
  check_costs(WorkKind::embedding, [&](StreamView stream, CostedRun& run, DType dtype) {
    embedding_forward(stream, shape, dtype,
                      {.out = run.writes(N * C),
                       .tokens = run.reads_integers(N, V, 2),
                       .tokens_table = run.reads_of(V * C, N * C)});
  });
}

TEST_CASE("an embedding's gradient costs all rows of the table, or the tokens' rows twice") {
  constexpr std::size_t B = 2, T = 3, C = 5, V = 11, N = B * T;
  const EmbeddingShape shape{.samples = B, .positions = T, .channels = C, .vocab_size = V};
  // As many rows as tokens, so that all of them are used.
  const EmbeddingShape small{.samples = B, .positions = T, .channels = C, .vocab_size = N};
  check_costs(WorkKind::embedding, [&](StreamView stream, CostedRun& run, DType dtype) {
    embedding_backward(stream, shape, dtype,
                       {.tokens_gradient = run.writes(V * C, DType::f32),
                        .token_rows = V,
                        .positions_gradient = run.writes((T + 1) * C, DType::f32),
                        .position_rows = T + 1,
                        .d_out = run.reads(N * C),
                        .tokens = run.reads_integers(N, V, 3),
                        .order = run.workspace(N * sizeof(std::int32_t))});
  });
  check_costs(WorkKind::embedding, [&](StreamView stream, CostedRun& run, DType dtype) {
    embedding_backward(stream, small, dtype,
                       {.tokens_gradient = run.changes(N * C, DType::f32),
                        .token_rows = N,
                        .positions_gradient = run.changes(T * C, DType::f32),
                        .position_rows = T,
                        .d_out = run.reads(N * C),
                        .tokens = run.reads_integers(N, N),
                        .accumulate = true,
                        .order = run.workspace(N * sizeof(std::int32_t))});
  });
}

TEST_CASE("a tile of an embedding's table costs its fraction of the tokens") {
  constexpr std::size_t N = 12, C = 5, V = 24, rows = 8;  // a third of the vocabulary
  const EmbeddingShape shape{.samples = 1, .positions = N, .channels = C, .vocab_size = V};
  tests::RecordingDevice device;
  const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
  std::vector<std::int32_t> tokens(N), order(N);
  for (std::size_t i = 0; i < N; ++i) tokens[i] = static_cast<std::int32_t>(2 * i);
  std::vector<float> out(N * C), table(rows * C);
  embedding_forward(*stream, shape, DType::f32,
                    {.out = out.data(),
                     .tokens = tokens.data(),
                     .tokens_table = table.data(),
                     .first_row = 8,
                     .token_rows = rows});
  embedding_backward(*stream, shape, DType::f32,
                     {.tokens_gradient = table.data(),
                      .first_row = 8,
                      .token_rows = rows,
                      .d_out = out.data(),
                      .tokens = tokens.data(),
                      .accumulate = true,
                      .order = order.data()});
  REQUIRE(device.work().size() == 2);
  constexpr std::size_t found = 4;  // tokens 8, 10, 12 and 14
  CHECK(device.work()[0].cost.bytes == 4.0 * (N + 2 * found * C));
  CHECK(device.work()[1].cost.bytes == 4.0 * (N + 3 * found * C));
}

TEST_CASE("cross entropy costs its logits, and again for their gradient") {
  constexpr std::size_t N = 4, V = 7;
  for (const bool gradient : {false, true})
    check_costs(WorkKind::cross_entropy, [&](StreamView stream, CostedRun& run, DType dtype) {
      cross_entropy(stream, {.rows = N, .vocab_size = V, .stride = V}, dtype,
                    {.logits = gradient ? run.changes(N * V) : run.reads(N * V),
                     .targets = run.reads_integers(N, V, 3),
                     .loss = run.writes(1, DType::f64),
                     .gradient = gradient,
                     .row_losses = run.workspace(N * sizeof(double)),
                     .exponentials = run.workspace(V * sizeof(float))});
    });
}

TEST_CASE("chosen rows cost their elements and their indices") {
  constexpr std::size_t B = 2, T = 5, F = 2, row = 3;
  const TargetRows shape{.samples = B, .positions = T, .chosen = F};
  CostedRun(DType::i32).check(WorkKind::elementwise, [&](StreamView stream, CostedRun& run) {
    choose_rows(stream, shape, run.writes(B * F), run.writes(B * F),
                run.reads_integers({-1, 3, -1, 4, -1, -1, 2, -1, -1, 5}));
  });
  CostedRun(DType::f16).check(WorkKind::elementwise, [&](StreamView stream, CostedRun& run) {
    gather_rows(stream, shape, run.writes(B * F * row), run.reads_of(B * T * row, B * F * row),
                run.reads_integers(B * F, T, 2), row * sizeof(std::int16_t));
  });

  tests::RecordingDevice device;
  const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
  std::vector<float> all(B * T * row), some(B * F * row);
  const std::vector<std::int32_t> some_places{0, 2, 4, 1};
  scatter_rows(*stream, shape, all.data(), some.data(), some_places.data(), row * sizeof(float));
  REQUIRE(device.work().size() == 2);
  CHECK(device.work()[0].cost.bytes == 4.0 * B * T * row);
  CHECK(device.work()[1].cost.bytes == 4.0 * (2 * B * F * row + B * F));
}
