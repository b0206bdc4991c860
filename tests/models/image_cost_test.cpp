#include "models/ops/batch_norm.hpp"
#include "models/ops/patches.hpp"
#include "models/ops/pixels.hpp"
#include "models/ops/pooling.hpp"
#include "tests/models/costed_run.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;
using runtime::StreamView;
using runtime::WorkKind;
using tests::CostedRun;

namespace {

constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace

TEST_CASE("batch normalization costs its rows and their statistics") {
  constexpr std::size_t N = 5, C = 7;
  const BatchNormShape shape{.rows = N, .channels = C};
  for (const DType dtype : float_types) {
    CostedRun statistics(dtype), fixed(dtype);
    const auto found = statistics.writes(3 * C, DType::f32), rows = statistics.reads(N * C);
    const auto sums_work = statistics.workspace(batch_norm_workspace_bytes(shape));
    statistics.check(WorkKind::batch_norm, [&](StreamView stream) {
      batch_norm_statistics(stream, shape, dtype, statistics.floats(found), statistics[rows],
                            statistics[sums_work]);
    });
    const auto given = fixed.writes(3 * C, DType::f32), mean = fixed.reads(C), variance = fixed.reads(C);
    fixed.check(WorkKind::batch_norm, [&](StreamView stream) {
      batch_norm_fixed_statistics(stream, shape, dtype, fixed.floats(given), fixed[mean], fixed[variance]);
    });
    for (const bool added : {false, true}) {
      const auto values = [&](CostedRun& run) {
        BatchNormValues of{.relu = true};
        const auto x = run.reads(N * C), of_rows = run.reads(3 * C, DType::f32), weight = run.reads(C);
        const auto bias = run.reads(C);
        const auto addend = added ? std::optional(run.reads(N * C)) : std::nullopt;
        return [&run, of, x, of_rows, weight, bias, addend]() mutable {
          of.x = run[x];
          of.statistics = run.floats(of_rows);
          of.weight = run[weight];
          of.bias = run[bias];
          of.addend = addend ? run[*addend] : nullptr;
          return of;
        };
      };
      CostedRun forward(dtype), backward(dtype);
      auto of = values(forward);
      const auto y = forward.writes(N * C);
      forward.check(WorkKind::batch_norm,
                    [&](StreamView stream) { batch_norm_forward(stream, shape, dtype, forward[y], of()); });
      auto of_x = values(backward);
      const auto dy = backward.reads(N * C), dx = backward.writes(N * C), sums = backward.writes(2 * C, DType::f32);
      const auto d_addend = added ? std::optional(backward.writes(N * C)) : std::nullopt;
      const auto work = backward.workspace(batch_norm_workspace_bytes(shape));
      backward.check(WorkKind::batch_norm, [&](StreamView stream) {
        batch_norm_backward(stream, shape, dtype,
                            {.dx = backward[dx],
                             .d_addend = d_addend ? backward[*d_addend] : nullptr,
                             .sums = backward.floats(sums),
                             .dy = backward[dy],
                             .workspace = backward[work]},
                            of_x());
      });
    }
  }
}

TEST_CASE("images cost their pixels and their patches") {
  constexpr std::size_t B = 2, H = 5, W = 4, C = 3, K = 3, P = 3, Q = 2;  // stride 2, with a margin of one
  const PatchShape shape{
      .samples = B, .height = H, .width = W, .channels = C, .kernel = K, .stride = 2, .padding = 1};
  REQUIRE(shape.rows() == B * P * Q);
  for (const DType dtype : float_types) {
    CostedRun gather(dtype), add(dtype), forward(dtype), backward(dtype);
    const auto patches = gather.writes(B * P * Q * C * K * K), x = gather.reads(B * H * W * C);
    gather.check(WorkKind::patches,
                 [&](StreamView stream) { gather_patches(stream, shape, dtype, gather[patches], gather[x]); });
    const auto sums = add.writes(B * H * W * C), of = add.reads(B * P * Q * C * K * K, DType::f32);
    add.check(WorkKind::patches,
              [&](StreamView stream) { add_patches(stream, shape, dtype, add[sums], add.floats(of)); });

    const auto y = forward.writes(B * P * Q * C), places = forward.writes_bytes(B * P * Q * C);
    const auto pixels = forward.reads(B * H * W * C);
    forward.check(WorkKind::patches, [&](StreamView stream) {
      max_pool_forward(stream, shape, dtype, forward[y], reinterpret_cast<std::uint8_t*>(forward[places]),
                       forward[pixels]);
    });
    const auto dx = backward.writes(B * H * W * C), dy = backward.reads(B * P * Q * C);
    const auto greatest = backward.reads_bytes(B * P * Q * C);
    backward.check(WorkKind::patches, [&](StreamView stream) {
      max_pool_backward(stream, shape, dtype, backward[dx], backward[dy],
                        reinterpret_cast<const std::uint8_t*>(backward[greatest]));
    });
  }
}

TEST_CASE("images cost their pixels and their means") {
  constexpr std::size_t B = 2, pixels = 7, C = 3;
  const MeanPoolShape shape{.samples = B, .pixels = pixels, .channels = C};
  for (const DType dtype : float_types) {
    CostedRun forward(dtype), backward(dtype), read(dtype);
    const auto y = forward.writes(B * C), x = forward.reads(B * pixels * C);
    forward.check(WorkKind::patches,
                  [&](StreamView stream) { mean_pool_forward(stream, shape, dtype, forward[y], forward[x]); });
    const auto dx = backward.writes(B * pixels * C), dy = backward.reads(B * C);
    backward.check(WorkKind::patches, [&](StreamView stream) {
      mean_pool_backward(stream, shape, dtype, backward[dx], backward[dy]);
    });
    const auto to = read.writes(B * pixels * colours), from = read.reads_bytes(B * colours * pixels);
    read.check(WorkKind::patches, [&](StreamView stream) {
      read_pixels(stream, B, pixels, dtype, read[to], reinterpret_cast<const std::uint8_t*>(read[from]));
    });
  }
}
