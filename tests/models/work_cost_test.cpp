#include "models/ops/target_rows.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/matrix_vector.hpp"
#include "models/ops/rms_norm.hpp"
#include "models/ops/rotary.hpp"
#include "models/ops/swiglu.hpp"
#include "tests/models/costed_run.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;
using runtime::ProductShape;
using runtime::StreamView;
using runtime::WorkCost;
using runtime::WorkKind;
using tests::CostedRun;

namespace {

constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

/// Cost of a product with operands of type `dtype`.
void check_product(const WorkCost& cost, DType dtype, const ProductShape& shape) {
  CHECK(cost.dtype == dtype);
  CHECK(cost.shape == shape);
  double flops = 0;
  for (std::size_t i = 0; i < shape.m * shape.n; ++i)
    for (std::size_t k = 0; k < shape.k; ++k) flops += 2;
  CHECK(cost.flops == flops);
}

}  // namespace

TEST_CASE("a product costs its operations and its arrays") {
  constexpr std::size_t M = 5, N = 7, K = 3;
  for (const DType dtype : float_types) {
    for (const DType to : {dtype, DType::f32}) {
      for (const bool accumulate : {false, true}) {
        CostedRun run(dtype);
        const auto a = run.reads(M * K), b = run.reads(K * N);
        const auto c = accumulate ? run.changes(M * N, to) : run.writes(M * N, to);
        const auto cost = run.check(WorkKind::product, [&](StreamView stream) {
          matmul(stream, {.m = M, .n = N, .k = K},
                 {.c = run[c], .c_dtype = to, .a = run[a], .b = run[b], .dtype = dtype, .accumulate = accumulate});
        });
        check_product(cost, dtype, {M, N, K});
      }
    }
    CostedRun run(dtype);
    const auto a = run.reads(M * K), b = run.reads(K * N), bias = run.reads(N), c = run.writes(M * N);
    check_product(
        run.check(
            WorkKind::product,
            [&](StreamView stream) {
              matmul(stream, {.m = M, .n = N, .k = K, .transpose_a = true, .transpose_b = true},
                     {.c = run[c], .c_dtype = dtype, .a = run[a], .b = run[b], .dtype = dtype, .bias = run[bias]});
            }),
        dtype, {M, N, K});
  }
}

TEST_CASE("a matrix times a vector costs as much as a product of one row") {
  constexpr std::size_t N = 7, K = 9;
  for (const DType dtype : float_types) {
    for (const bool biased : {false, true}) {
      CostedRun run(dtype);
      const auto a = run.reads(N * K), x = run.reads(K), y = run.writes(N, DType::f32);
      const auto bias = biased ? std::optional(run.reads(N)) : std::nullopt;
      check_product(run.check(WorkKind::product,
                              [&](StreamView stream) {
                                matrix_vector(stream, {.n = N, .k = K},
                                              {.y = run[y],
                                               .y_dtype = DType::f32,
                                               .a = run[a],
                                               .x = run[x],
                                               .dtype = dtype,
                                               .bias = bias ? run[*bias] : nullptr});
                              }),
                    dtype, {1, N, K});
    }
  }
}

TEST_CASE("sums of columns cost their rows") {
  constexpr std::size_t M = 6, N = 11;
  for (const DType dtype : float_types) {
    for (const bool accumulate : {false, true}) {
      CostedRun run(dtype);
      const auto dy = run.reads(M * N);
      const auto sums = accumulate ? run.changes(N, DType::f32) : run.writes(N, DType::f32);
      run.check(WorkKind::elementwise, [&](StreamView stream) {
        column_sums(stream, run[sums], DType::f32, run[dy], dtype, M, N, accumulate);
      });
    }
  }
}

TEST_CASE("an activation costs the bytes that it reads and writes") {
  constexpr std::size_t N = 5, F = 7;
  for (const DType dtype : float_types) {
    for (const GeluForm form : {GeluForm::tanh, GeluForm::erf}) {
      CostedRun forward(dtype), backward(dtype);
      const auto y = forward.writes(N), x = forward.reads(N);
      forward.check(WorkKind::activation,
                    [&](StreamView stream) { gelu_forward(stream, dtype, forward[y], forward[x], N, form); });
      const auto d = backward.changes(N), again = backward.changes(N);
      backward.check(WorkKind::activation, [&](StreamView stream) {
        gelu_backward(stream, dtype, backward[d], backward[again], backward[again], N, form);
      });
      CostedRun alone(dtype);
      const auto alone_d = alone.changes(N), of = alone.reads(N);
      alone.check(WorkKind::activation, [&](StreamView stream) {
        gelu_backward(stream, dtype, alone[alone_d], alone[of], nullptr, N, form);
      });
    }
    CostedRun forward(dtype), backward(dtype);
    const auto y = forward.writes(N * F), x = forward.reads(N * 2 * F);
    forward.check(WorkKind::activation,
                  [&](StreamView stream) { swiglu_forward(stream, dtype, forward[y], forward[x], N, F); });
    const auto d = backward.changes(N * F), gate_up = backward.changes(N * 2 * F);
    const auto cost = backward.check(WorkKind::activation, [&](StreamView stream) {
      swiglu_backward(stream, dtype, backward[d], backward[gate_up], backward[d], N, F);
    });
    CostedRun alone(dtype);
    const auto alone_d = alone.reads(N * F), changed = alone.changes(N * 2 * F);
    alone.check(WorkKind::activation, [&](StreamView stream) {
      swiglu_backward(stream, dtype, alone[alone_d], alone[changed], nullptr, N, F);
    });
    CHECK(cost.dtype == dtype);
    CHECK(cost.flops == 0);
  }
}

TEST_CASE("dropout costs its elements twice, and nothing if the rate is zero") {
  for (const DType dtype : float_types) {
    CostedRun run(dtype);
    const auto x = run.changes(3 * 7);
    run.check(WorkKind::dropout,
              [&](StreamView stream) { dropout(stream, run[x], dtype, 3, 7, make_dropout(0.5f, 1, 2, 3, 4)); });
  }
  tests::RecordingDevice device;
  const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
  float x = 1;
  dropout(*stream, &x, DType::f32, 1, 1, {});
  CHECK(device.work().empty());
}

TEST_CASE("layer normalization costs its rows and its saved values") {
  constexpr std::size_t N = 3, C = 9;
  const LayerNormShape shape{.rows = N, .channels = C};
  for (const DType dtype : float_types) {
    for (const bool with_more : {false, true}) {
      CostedRun forward(dtype), backward(dtype);
      const auto y = forward.writes(N * C), x = forward.reads(N * C), weight = forward.reads(C);
      const auto bias = forward.reads(C), mean = forward.writes(N, DType::f32),
                 rstd = forward.writes(N, DType::f32);
      const auto branch = with_more ? std::optional(forward.reads(N * C)) : std::nullopt;
      const auto sum = with_more ? std::optional(forward.writes(N * C)) : std::nullopt;
      forward.check(WorkKind::norm, [&](StreamView stream) {
        layer_norm_forward(stream, shape, dtype,
                           {.y = forward[y],
                            .mean = forward.floats(mean),
                            .rstd = forward.floats(rstd),
                            .x = forward[x],
                            .weight = forward[weight],
                            .bias = forward[bias],
                            .branch = branch ? forward[*branch] : nullptr,
                            .sum = sum ? forward[*sum] : nullptr});
      });
      const auto dx = backward.writes(N * C), sums = backward.writes(2 * C, DType::f32), dy = backward.reads(N * C);
      const auto from = backward.reads(N * C), mean_of = backward.reads(N, DType::f32);
      const auto rstd_of = backward.reads(N, DType::f32), scale = backward.reads(C);
      const auto residual = with_more ? std::optional(backward.reads(N * C)) : std::nullopt;
      const auto work = backward.workspace(layer_norm_workspace_bytes(shape));
      backward.check(WorkKind::norm, [&](StreamView stream) {
        layer_norm_backward(stream, shape, dtype,
                            {.dx = backward[dx],
                             .sums = backward.floats(sums),
                             .dy = backward[dy],
                             .x = backward[from],
                             .mean = backward.floats(mean_of),
                             .rstd = backward.floats(rstd_of),
                             .weight = backward[scale],
                             .residual = residual ? backward[*residual] : nullptr,
                             .workspace = backward[work]});
      });
    }
    CostedRun again(dtype), store(dtype), accumulate(dtype);
    const auto y = again.writes(N * C), x = again.reads(N * C), mean = again.reads(N, DType::f32);
    const auto rstd = again.reads(N, DType::f32), weight = again.reads(C), bias = again.reads(C);
    again.check(WorkKind::norm, [&](StreamView stream) {
      layer_norm_again(stream, shape, dtype, again[y], again.floats(mean), again.floats(rstd), again[x],
                       again[weight], again[bias]);
    });
    const auto gradient = store.writes(C), sums = store.reads(C, DType::f32);
    store.check(WorkKind::elementwise, [&](StreamView stream) {
      store_gradient(stream, store[gradient], dtype, store.floats(sums), C, false);
    });
    const auto total = accumulate.changes(C), more = accumulate.reads(C, DType::f32);
    accumulate.check(WorkKind::elementwise, [&](StreamView stream) {
      store_gradient(stream, accumulate[total], dtype, accumulate.floats(more), C, true);
    });
  }
}

TEST_CASE("RMS normalization costs its groups and its saved values") {
  constexpr std::size_t N = 3, G = 2, C = 5, all = N * G * C;
  const RmsNormShape shape{.rows = N, .channels = C, .groups = G};
  for (const DType dtype : float_types) {
    for (const bool with_more : {false, true}) {
      CostedRun forward(dtype), backward(dtype);
      const auto y = forward.writes(all), x = forward.reads(all), weight = forward.reads(C);
      const auto rstd = forward.writes(N * G, DType::f32);
      const auto branch = with_more ? std::optional(forward.reads(all)) : std::nullopt;
      const auto sum = with_more ? std::optional(forward.writes(all)) : std::nullopt;
      forward.check(WorkKind::norm, [&](StreamView stream) {
        rms_norm_forward(stream, shape, dtype,
                         {.y = forward[y],
                          .rstd = forward.floats(rstd),
                          .x = forward[x],
                          .weight = forward[weight],
                          .branch = branch ? forward[*branch] : nullptr,
                          .sum = sum ? forward[*sum] : nullptr});
      });
      const auto dx = backward.writes(all), sums = backward.writes(C, DType::f32), dy = backward.reads(all);
      const auto from = backward.reads(all), rstd_of = backward.reads(N * G, DType::f32), scale = backward.reads(C);
      const auto residual = with_more ? std::optional(backward.reads(all)) : std::nullopt;
      const auto work = backward.workspace(rms_norm_workspace_bytes(shape));
      backward.check(WorkKind::norm, [&](StreamView stream) {
        rms_norm_backward(stream, shape, dtype,
                          {.dx = backward[dx],
                           .weight_sums = backward.floats(sums),
                           .dy = backward[dy],
                           .x = backward[from],
                           .rstd = backward.floats(rstd_of),
                           .weight = backward[scale],
                           .residual = residual ? backward[*residual] : nullptr,
                           .workspace = backward[work]});
      });
    }
    CostedRun again(dtype);
    const auto y = again.writes(all), x = again.reads(all), rstd = again.reads(N * G, DType::f32);
    const auto weight = again.reads(C);
    again.check(WorkKind::norm, [&](StreamView stream) {
      rms_norm_again(stream, shape, dtype, again[y], again.floats(rstd), again[x], again[weight]);
    });
  }
}

TEST_CASE("rotary positions cost the rotated channels") {
  constexpr std::size_t B = 2, T = 3, G = 3, D = 4, row = 16;
  for (const DType dtype : float_types) {
    const RotaryShape shape{.samples = B, .positions = T, .heads = G, .row_channels = G * D};
    CostedRun run(dtype);
    const auto x = run.changes(B * T * G * D);
    const auto positions = run.reads_integers(B * T, T);
    run.check(WorkKind::rotary, [&](StreamView stream) {
      rotary(stream, shape, dtype, run[x], rotary_frequencies(D, 100), Rotation::forward, run.integers(positions));
    });
    // Neighboring elements are not accessed.
    CostedRun wide(dtype);
    const auto some = wide.changes(B * T * row);
    RotaryShape wider = shape;
    wider.row_channels = row;
    tests::RecordingDevice device;
    const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
    rotary(*stream, wider, dtype, wide[some], rotary_frequencies(D, 100), Rotation::inverse);
    REQUIRE(device.work().size() == 1);
    CHECK(device.work()[0].cost.bytes == 2.0 * B * T * G * D * static_cast<double>(size_of(dtype)));
  }
}

TEST_CASE("an embedding costs the rows that it looks up, or adds to") {
  constexpr std::size_t B = 2, T = 3, C = 5, V = 11, N = B * T;
  const EmbeddingShape shape{.samples = B, .positions = T, .channels = C, .vocab_size = V};
  for (const DType dtype : float_types) {
    for (const bool placed : {false, true}) {
      CostedRun both(dtype), positions_only(dtype);
      const auto out = both.writes(N * C), tokens = both.reads_integers(N, V, 3);
      const auto table = both.reads_of(V * C, N * C), places = both.reads(T * C);
      const auto positions = placed ? std::optional(both.reads_integers(N, T)) : std::nullopt;
      both.check(WorkKind::embedding, [&](StreamView stream) {
        embedding_forward(stream, shape, dtype, both[out], both.integers(tokens), both[table], both[places],
                          positions ? both.integers(*positions) : nullptr);
      });
      const auto to = positions_only.changes(N * C), rows = positions_only.reads(T * C);
      const auto of = placed ? std::optional(positions_only.reads_integers(N, T)) : std::nullopt;
      positions_only.check(WorkKind::embedding, [&](StreamView stream) {
        embedding_positions_forward(stream, shape, dtype, positions_only[to], positions_only[rows],
                                    of ? positions_only.integers(*of) : nullptr);
      });
    }
    CostedRun tokens_only(dtype);
    const auto out = tokens_only.writes(N * C), tokens = tokens_only.reads_integers(N, V, 2);
    const auto table = tokens_only.reads_of(V * C, N * C);
    tokens_only.check(WorkKind::embedding, [&](StreamView stream) {
      embedding_tokens_forward(stream, shape, dtype, tokens_only[out], tokens_only.integers(tokens),
                               tokens_only[table], 0, V);
    });
  }
}

TEST_CASE("an embedding's gradient costs all rows of the table, or the tokens' rows twice") {
  constexpr std::size_t B = 2, T = 3, C = 5, V = 11, N = B * T;
  const EmbeddingShape shape{.samples = B, .positions = T, .channels = C, .vocab_size = V};
  for (const DType dtype : float_types) {
    CostedRun first(dtype), more(dtype);
    const auto gradient = first.writes(V * C, DType::f32), of_positions = first.writes((T + 1) * C, DType::f32);
    const auto d_out = first.reads(N * C), tokens = first.reads_integers(N, V, 3);
    const auto order = first.workspace(N * sizeof(std::int32_t));
    first.check(WorkKind::embedding, [&](StreamView stream) {
      embedding_backward(stream, shape, dtype,
                         {.tokens_gradient = first[gradient],
                          .token_rows = V,
                          .positions_gradient = first[of_positions],
                          .position_rows = T + 1,
                          .d_out = first[d_out],
                          .tokens = first.integers(tokens),
                          .order = first.integers(order)});
    });
    // As many rows as tokens, so that all of them are used.
    const EmbeddingShape small{.samples = B, .positions = T, .channels = C, .vocab_size = N};
    const auto total = more.changes(N * C, DType::f32), total_of_positions = more.changes(T * C, DType::f32);
    const auto d_more = more.reads(N * C), met = more.reads_integers(N, N);
    const auto order_of_met = more.workspace(N * sizeof(std::int32_t));
    more.check(WorkKind::embedding, [&](StreamView stream) {
      embedding_backward(stream, small, dtype,
                         {.tokens_gradient = more[total],
                          .token_rows = N,
                          .positions_gradient = more[total_of_positions],
                          .position_rows = T,
                          .d_out = more[d_more],
                          .tokens = more.integers(met),
                          .accumulate = true,
                          .order = more.integers(order_of_met)});
    });
  }
}

TEST_CASE("a tile of an embedding's table costs its fraction of the tokens") {
  constexpr std::size_t N = 12, C = 5, V = 24, rows = 8;  // a third of the vocabulary
  const EmbeddingShape shape{.samples = 1, .positions = N, .channels = C, .vocab_size = V};
  tests::RecordingDevice device;
  const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
  std::vector<std::int32_t> tokens(N), order(N);
  for (std::size_t i = 0; i < N; ++i) tokens[i] = static_cast<std::int32_t>(2 * i);
  std::vector<float> out(N * C), table(rows * C);
  embedding_tokens_forward(*stream, shape, DType::f32, out.data(), tokens.data(), table.data(), 8, rows);
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
  for (const DType dtype : float_types) {
    for (const bool gradient : {false, true}) {
      CostedRun run(dtype);
      const auto logits = gradient ? run.changes(N * V) : run.reads(N * V), targets = run.reads_integers(N, V, 3);
      const auto loss = run.writes(1, DType::f64);
      const auto losses = run.workspace(N * sizeof(double)), exponentials = run.workspace(V * sizeof(float));
      run.check(WorkKind::cross_entropy, [&](StreamView stream) {
        cross_entropy(stream, {.rows = N, .vocab_size = V, .stride = V}, dtype,
                      {.logits = run[logits],
                       .targets = run.integers(targets),
                       .loss = reinterpret_cast<double*>(run[loss]),
                       .gradient = gradient,
                       .row_losses = reinterpret_cast<double*>(run[losses]),
                       .exponentials = run.floats(exponentials)});
      });
    }
  }
}

TEST_CASE("chosen rows cost their elements and their indices") {
  constexpr std::size_t B = 2, T = 5, F = 2, row = 3;
  const TargetRows shape{.samples = B, .positions = T, .chosen = F};
  CostedRun choose(DType::i32), gather(DType::f16);
  const auto places = choose.writes(B * F), chosen = choose.writes(B * F);
  const auto targets = choose.reads_integers({-1, 3, -1, 4, -1, -1, 2, -1, -1, 5});
  choose.check(WorkKind::elementwise, [&](StreamView stream) {
    choose_rows(stream, shape, choose.integers(places), choose.integers(chosen), choose.integers(targets));
  });
  const auto to = gather.writes(B * F * row), from = gather.reads_of(B * T * row, B * F * row);
  const auto at = gather.reads_integers(B * F, T, 2);
  gather.check(WorkKind::elementwise, [&](StreamView stream) {
    gather_rows(stream, shape, gather[to], gather[from], gather.integers(at), row * sizeof(std::int16_t));
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
