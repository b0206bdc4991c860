#include "models/ops/attention.hpp"
#include "models/ops/cached_attention.hpp"
#include "tests/models/costed_run.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;
using runtime::StreamView;
using runtime::WorkKind;
using tests::CostedRun;

namespace {

/// Whether query i attends to key j.
bool sees(bool causal, int window, int i, int j) { return !causal || (j <= i && (window == 0 || j > i - window)); }

/// Two operations for each channel of each visible pair, of one head and sample.
double product_flops(bool causal, int window, int first, int queries, int keys, int channels) {
  double flops = 0;
  for (int i = first; i < first + queries; ++i)
    for (int j = 0; j < keys; ++j) flops += sees(causal, window, i, j) ? 2 * channels : 0;
  return flops;
}

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const int key_heads : {0, 2, 1}) {
    for (const int window : {0, 1, 3, 7, 20})
      all.push_back(
          {.samples = 2, .positions = 7, .heads = 4, .channels = 6, .key_heads = key_heads, .window = window});
    all.push_back(
        {.samples = 3, .positions = 5, .heads = 2, .channels = 8, .key_heads = key_heads, .causal = false});
  }
  return all;
}

}  // namespace

TEST_CASE("attention costs two products forward and five backward, over the pairs that its mask allows") {
  for (const DType dtype : float_types)
    for (const AttentionShape& shape : shapes()) {
      CAPTURE_ALL(shape.key_heads, shape.window);
      const auto B = static_cast<std::size_t>(shape.samples), T = static_cast<std::size_t>(shape.positions);
      const auto H = static_cast<std::size_t>(shape.heads), C = H * static_cast<std::size_t>(shape.channels);
      const std::size_t wide = B * T * shape.row_channels(),
                        work_bytes = attention_workspace_bytes(shape, dtype, 1);
      const double flops =
          shape.samples * shape.heads *
          product_flops(shape.causal, shape.window, 0, shape.positions, shape.positions, shape.channels);
      const auto cost = CostedRun(dtype).check(WorkKind::attention, [&](StreamView stream, CostedRun& run) {
        attention_forward(stream, shape, dtype,
                          {.qkv = run.reads(wide),
                           .out = run.writes(B * T * C),
                           .logsumexp = run.writes(B * H * T, DType::f32),
                           .workspace = run.workspace(work_bytes)});
      });
      CHECK(cost.flops == 2 * flops);
      CHECK(cost.dtype == dtype);
      const auto back = CostedRun(dtype).check(WorkKind::attention, [&](StreamView stream, CostedRun& run) {
        attention_backward(stream, shape, dtype,
                           {.qkv = run.reads(wide),
                            .out = run.reads(B * T * C),
                            .logsumexp = run.reads(B * H * T, DType::f32),
                            .d_out = run.reads(B * T * C),
                            .d_qkv = run.writes(wide),
                            .workspace = run.workspace(work_bytes)});
      });
      CHECK(back.flops == 5 * flops);
    }
}

TEST_CASE("cached attention costs two products over the existing positions") {
  constexpr int T = 9, H = 4, K = 2, D = 6;
  constexpr std::size_t cache = K * T * D;
  for (const DType dtype : float_types)
    for (const int window : {0, 2, 5, 20})
      for (const int past : {0, 1, 4})
        for (const int queries : {1, 3}) {
          CAPTURE_ALL(window, past, queries);
          const CachedAttentionShape shape{
              {.positions = queries, .heads = H, .channels = D, .key_heads = K, .window = window}, past, T};
          const auto Q = static_cast<std::size_t>(queries);
          std::size_t seen = 0;  // keys visible to any of the queries
          for (int j = 0; j < past + queries; ++j) {
            bool any = false;
            for (int i = past; i < past + queries; ++i) any = any || sees(true, window, i, j);
            seen += any ? 1 : 0;
          }
          tests::RecordingDevice device;
          const auto stream = device.make_stream("operations", runtime::StreamWidth::whole);
          TypedArray keys(dtype, cache, 1), values(dtype, cache, 2), qkv(dtype, Q * shape.row_channels(), 3);
          TypedArray out(dtype, Q * H * D);
          std::vector<std::byte> work(cached_attention_workspace_bytes(shape, 1));
          append_to_cache(*stream, shape, dtype, keys.data(), values.data(), qkv.data());
          cached_attention(*stream, shape, dtype, out.data(), keys.data(), values.data(), qkv.data(), work.data());
          const auto width = static_cast<double>(size_of(dtype));
          REQUIRE(device.work().size() == 2);
          CHECK(device.work()[0].cost.bytes == width * static_cast<double>(2 * 2 * Q * K * D));
          CHECK(device.work()[1].cost.bytes == width * static_cast<double>(2 * Q * H * D + 2 * seen * K * D));
          CHECK(device.work()[1].cost.flops ==
                2 * H * product_flops(true, window, past, queries, past + queries, D));
        }
}
