#include "models/core/initialize.hpp"

#include "models/core/unit.hpp"
#include "models/ops/vector_philox.hpp"
#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace ranvier::models {
namespace {

using simd::Floats;
using simd::Words;

/// Elements that one round of the vectorised generator draws.
constexpr std::size_t block = 4 * simd::lanes;

runtime::PhiloxKey parameter_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const auto mixed =
      runtime::philox(runtime::philox_key(seed, runtime::RandomPurpose::initial_weights),
                      {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 0});
  return {mixed[0], mixed[1]};
}

Floats square_root(Floats x) {
  for (std::size_t i = 0; i < simd::lanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

/// ln x for normal x > 0 (Cephes' logf).
Floats log(Floats x) {
  // x = m · 2^e with √½ <= m < √2.
  const auto bits = std::bit_cast<Words>(x);
  const Words shifted = bits - 0x3f3504f3u;
  const Floats e = __builtin_convertvector(std::bit_cast<simd::Ints>(shifted) >> 23, Floats);
  const Floats m = std::bit_cast<Floats>((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const Floats p = simd::log_tail(m);
  const Floats square = m * m;
  return (p * m * square - 0.5f * square + e * -2.12194440e-4f) + m + e * 0.693359375f;
}

/// Two normal numbers from two uniform ones (Box and Muller 1958).
simd::SineCosine normal_pair(Words radius_bits, Words angle_bits) {
  const Floats u = simd::uniform(radius_bits) + 0x1p-24f;  // in (0, 1]
  const Floats radius = square_root(-2.0f * log(u));
  const auto [sine, cosine] = simd::sine_cosine_of_turns(simd::uniform(angle_bits));
  return {radius * sine, radius * cosine};
}

/// values[i] = element first + i, i < block; first is a multiple of `block`. Elements 4q … 4q+3 come from the words of
/// counter q, so the block size does not change values.
void draw(const Initializer& initializer, runtime::PhiloxKey key, std::size_t first, float* values) {
  std::array<Words, 4> words = simd::philox(key, first / 4, 0, 0);
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    Floats a, b;
    if (initializer.kind == Initializer::Kind::uniform) {
      a = 2.0f * simd::uniform(words[pair]) - 1.0f;
      b = 2.0f * simd::uniform(words[pair + 1]) - 1.0f;
    } else {
      const simd::SineCosine normals = normal_pair(words[pair], words[pair + 1]);
      a = normals.sine;
      b = normals.cosine;
    }
    words[pair] = std::bit_cast<Words>(a * initializer.scale);
    words[pair + 1] = std::bit_cast<Words>(b * initializer.scale);
  }
  words = simd::in_counter_order(words);
  for (std::size_t i = 0; i < 4; ++i) simd::store(values + i * simd::lanes, std::bit_cast<Floats>(words[i]));
}

void fill(const Initializer& initializer, runtime::PhiloxKey key, std::size_t begin, std::size_t end, float* to) {
  switch (initializer.kind) {
    case Initializer::Kind::zeros:
      std::fill(to, to + (end - begin), 0.0f);
      return;
    case Initializer::Kind::ones:
      std::fill(to, to + (end - begin), 1.0f);
      return;
    case Initializer::Kind::normal:
    case Initializer::Kind::uniform:
      break;
  }
  for (std::size_t first = begin / block * block; first < end; first += block) {
    float values[block];
    draw(initializer, key, first, values);
    const std::size_t from = std::max(first, begin), until = std::min(first + block, end);
    std::copy(values + (from - first), values + (until - first), to + (from - begin));
  }
}

}  // namespace

void initialize(const UnitSpec& unit, std::uint64_t seed, std::size_t begin, std::size_t end, float* to,
                runtime::ComputePool* pool) {
  expect(begin <= end && end <= unit.elements(), "elements are out of range: {} to {} of unit {} with {}", begin,
         end, unit.name, unit.elements());
  const auto part = [&](std::size_t part_begin, std::size_t part_end) {
    std::fill(to + (part_begin - begin), to + (part_end - begin), 0.0f);
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const ParameterSpec& parameter = unit.parameters[i];
      const std::size_t offset = unit.offset(i);
      const std::size_t from = std::max(offset, part_begin);
      const std::size_t until = std::min(offset + parameter.elements(), part_end);
      if (from >= until) continue;
      const runtime::PhiloxKey key = parameter_key(seed, parameter.name);
      for_each_run(parameter, from - offset, until - offset,
                   [&](std::size_t first, std::size_t count, std::size_t at) {
                     fill(parameter.initializer, key, first, first + count, to + (offset + at - begin));
                   });
    }
  };
  if (pool == nullptr) return part(begin, end);
  pool->run([&](int thread, int threads) {
    const auto share = runtime::share_of(end - begin, thread, threads, block);
    part(begin + share.begin, begin + share.end);
  });
}

}  // namespace ranvier::models
