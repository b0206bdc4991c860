#include "models/ops/cached_attention.hpp"

#include "tests/models/every_device.hpp"
#include "tests/models/plain_attention.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Attention of all positions through a cache, with `calls[i]` positions in call i. The number of earlier positions is
/// an argument, or is read from device memory.
TypedArray cached(runtime::StreamView stream, const TypedArray& qkv, CachedAttentionShape shape,
                  const std::vector<int>& calls, bool finds_past = false) {
  const auto C = static_cast<std::size_t>(shape.heads * shape.channels);
  const std::size_t row = shape.row_channels(), kept = static_cast<std::size_t>(shape.capacity) * (row - C) / 2;
  const DType dtype = qkv.dtype();
  TypedArray keys(dtype, kept), values(dtype, kept), out(dtype, qkv.size() / row * C);
  std::memset(keys.data(), 0xff, keys.size() * size_of(dtype));
  std::memset(values.data(), 0xff, values.size() * size_of(dtype));
  std::vector<std::byte> workspace(cached_attention_workspace_bytes(shape, stream.device().threads()),
                                   std::byte{0xff});
  std::vector<std::int32_t> pasts(calls.size());
  DeviceCopies at(stream);
  int past = 0;
  for (std::size_t call = 0; call < calls.size(); ++call) pasts[call] = std::exchange(past, past + calls[call]);
  const std::int32_t* const places = at(pasts);
  for (std::size_t call = 0; call < calls.size(); ++call) {
    shape.positions = calls[call];
    shape.past = finds_past ? 0 : pasts[call];
    shape.past_place = finds_past ? places + call : nullptr;
    const auto first = static_cast<std::size_t>(pasts[call]);
    append_to_cache(stream, shape, dtype, at(keys), at(values), at(qkv, first * row));
    cached_attention(stream, shape, dtype, at(out, first * C), at(keys), at(values), at(qkv, first * row),
                     at(workspace));
  }
  at.fetch();
  return out;
}

}  // namespace

TEST_CASE("attention to a cache equals attention to all positions, for any number of positions per call") {
  tests::Share share(1, 4);
  for (const auto& [heads, channels, n, key_heads, window] : {std::tuple{1, 1, 21, 0, 0},
                                                              {3, 5, 21, 0, 0},
                                                              {2, 16, 80, 0, 0},
                                                              {2, 64, 21, 0, 0},
                                                              {1, 80, 21, 0, 0},
                                                              {4, 16, 21, 2, 0},
                                                              {3, 5, 40, 1, 7},
                                                              {2, 64, 70, 2, 33}}) {
    for (const DType dtype : float_types) {
      if (!share.takes()) continue;
      const CachedAttentionShape shape{
          {.heads = heads, .channels = channels, .key_heads = key_heads, .window = window}, 0, n};
      CachedAttentionShape roomy = shape;
      roomy.capacity += 7;
      const TypedArray qkv(dtype, static_cast<std::size_t>(n) * shape.row_channels(), 5);
      Doubles expected, logsumexp;
      PlainAttention{
          {.positions = n, .heads = heads, .channels = channels, .key_heads = key_heads, .window = window}, {}}
          .forward(doubles(qkv), expected, logsumexp);
      on_every_device([&](runtime::StreamView stream) {
        const TypedArray at_once = cached(stream, qkv, shape, {n});
        double error = 0;
        for (std::size_t i = 0; i < expected.size(); ++i)
          error =
              worse(error, std::abs(at_once[i] - expected[i]) / (4e-6 + half_unit(dtype) * std::abs(expected[i])));
        CAPTURE_ALL(heads, channels, window);
        CHECK(error <= 1.01);
        CHECK(same_bits(cached(stream, qkv, roomy, std::vector<int>(n, 1)), at_once));
        CHECK(same_bits(cached(stream, qkv, shape, {5, 1, 12, n - 18}), at_once));
        CHECK(same_bits(cached(stream, qkv, shape, {5, 1, 12, n - 18}, true), at_once));
      });
    }
  }
}

TEST_CASE("attention to a cache handles scores beyond the range of the exponential") {
  TypedArray qkv(DType::f32, 3 * 3 * 16, 9, 1e3);
  on_every_device([&](runtime::StreamView stream) {
    const TypedArray out = cached(stream, qkv, {{.heads = 1, .channels = 16}, 0, 3}, {1, 1, 1});
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); ++i) finite = finite && std::isfinite(out[i]);
    CHECK(finite);
  });
}

TEST_CASE("a cache refuses positions beyond its capacity, and heads that do not divide") {
  on_one_device([](runtime::StreamView stream) {
    float memory[3] = {};
    for (const CachedAttentionShape& shape : {CachedAttentionShape{{.heads = 1, .channels = 1}, 4, 4},
                                              {{.heads = 3, .channels = 1, .key_heads = 2}, 0, 4},
                                              {{.heads = 0, .channels = 1}, 0, 4}})
      CHECK_THROWS_AS(append_to_cache(stream, shape, DType::f32, memory, memory, memory), Error);
  });
}
