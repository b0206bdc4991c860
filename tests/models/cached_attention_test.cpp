#include "models/ops/cached_attention.hpp"

#include "runtime/error.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// out[n, C] of attention by its definition, in double, from qkv[n, 3C].
std::vector<double> plain(const TypedArray& qkv, std::size_t n, std::size_t H, std::size_t D) {
  const std::size_t C = H * D;
  std::vector<double> out(n * C);
  for (std::size_t h = 0; h < H; ++h) {
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> weights(i + 1);
      double total = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < D; ++d) score += qkv[i * 3 * C + h * D + d] * qkv[j * 3 * C + C + h * D + d];
        weights[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
        total += weights[j];
      }
      for (std::size_t j = 0; j <= i; ++j)
        for (std::size_t d = 0; d < D; ++d)
          out[i * C + h * D + d] += weights[j] / total * qkv[j * 3 * C + 2 * C + h * D + d];
    }
  }
  return out;
}

/// The same through a cache with room for `capacity` positions, so many positions in each call, which is told of those
/// before it, or finds their number in the device's memory.
TypedArray cached(runtime::StreamView stream, const TypedArray& qkv, int capacity, int heads, int channels,
                  const std::vector<int>& calls, bool finds_past = false) {
  const auto C = static_cast<std::size_t>(heads * channels), T = static_cast<std::size_t>(capacity);
  const DType dtype = qkv.dtype();
  TypedArray keys(dtype, T * C), values(dtype, T * C), out(dtype, qkv.size() / 3);
  std::memset(keys.data(), 0xff, keys.size() * size_of(dtype));
  std::memset(values.data(), 0xff, values.size() * size_of(dtype));
  CachedAttentionShape shape{.queries = 0, .past = 0, .capacity = capacity, .heads = heads, .channels = channels};
  std::vector<std::byte> workspace(cached_attention_workspace_bytes(shape, stream.device().threads()),
                                   std::byte{0xff});
  std::vector<std::int32_t> pasts(calls.size());
  DeviceCopies at(stream);
  int past = 0;
  for (std::size_t call = 0; call < calls.size(); ++call) pasts[call] = std::exchange(past, past + calls[call]);
  const std::int32_t* const places = at(pasts);
  for (std::size_t call = 0; call < calls.size(); ++call) {
    shape.queries = calls[call];
    shape.past = finds_past ? 0 : pasts[call];
    shape.past_place = finds_past ? places + call : nullptr;
    const std::size_t first = static_cast<std::size_t>(pasts[call]) * C;
    append_to_cache(stream, shape, dtype, at(keys), at(values), at(qkv, 3 * first));
    cached_attention(stream, shape, dtype, at(out, first), at(keys), at(values), at(qkv, 3 * first), at(workspace));
  }
  at.fetch();
  return out;
}

}  // namespace

TEST_CASE("attention to a cache is attention to all positions, however many come in a call") {
  for (const auto& [heads, channels, n] :
       {std::tuple{1, 1, 21}, {3, 5, 21}, {2, 16, 80}, {2, 64, 21}, {1, 80, 21}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto C = static_cast<std::size_t>(heads * channels);
      const TypedArray qkv(dtype, static_cast<std::size_t>(n) * 3 * C, 5);
      const auto expected = plain(qkv, n, static_cast<std::size_t>(heads), static_cast<std::size_t>(channels));
      on_every_device([&](runtime::StreamView stream) {
        const TypedArray at_once = cached(stream, qkv, n, heads, channels, {n});
        double error = 0;
        for (std::size_t i = 0; i < expected.size(); ++i)
          error =
              worse(error, std::abs(at_once[i] - expected[i]) / (4e-6 + half_unit(dtype) * std::abs(expected[i])));
        CAPTURE(heads);
        CAPTURE(channels);
        CHECK(error <= 1.01);
        CHECK(same_bits(cached(stream, qkv, n + 7, heads, channels, std::vector<int>(n, 1)), at_once));
        CHECK(same_bits(cached(stream, qkv, n, heads, channels, {5, 1, 12, n - 18}), at_once));
        CHECK(same_bits(cached(stream, qkv, n, heads, channels, {5, 1, 12, n - 18}, true), at_once));
      });
    }
  }
}

TEST_CASE("attention to a cache survives scores that no exponential holds") {
  TypedArray qkv(DType::f32, 3 * 3 * 16, 9, 1e3);
  on_every_device([&](runtime::StreamView stream) {
    const TypedArray out = cached(stream, qkv, 3, 1, 16, {1, 1, 1});
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); ++i) finite = finite && std::isfinite(out[i]);
    CHECK(finite);
  });
}

TEST_CASE("a cache refuses positions that it has no room for") {
  const auto device = runtime::make_inline_device({.threads = 1});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  float memory[3] = {};
  CHECK_THROWS_AS(append_to_cache(*stream, {.queries = 1, .past = 4, .capacity = 4, .heads = 1, .channels = 1},
                                  DType::f32, memory, memory, memory),
                  Error);
}
