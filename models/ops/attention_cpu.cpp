#include "models/ops/attention_cpu.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace ranvier::models {
namespace {

using runtime::to_float;

/// Calls work(sample, head) for every head of every sample, shared among the threads.
template <typename Work>
void for_each_head(runtime::ComputePool& pool, const AttentionShape& shape, const Work& work) {
  const auto heads = static_cast<std::size_t>(shape.heads);
  pool.run([&](int thread, int threads) {
    const auto [begin, end] = runtime::share_of(static_cast<std::size_t>(shape.samples) * heads, thread, threads);
    for (std::size_t i = begin; i < end; ++i) work(i / heads, i % heads);
  });
}

float kept_factor(const Dropout& dropout, std::size_t b, std::uint64_t element) {
  if (dropout.rate == 0) return 1;
  const auto bits = dropout_bits(dropout, static_cast<std::int64_t>(b), element / 4)[element % 4];
  return runtime::uniform(bits) >= dropout.rate ? dropout.kept_scale() : 0.0f;
}

}  // namespace

std::size_t attention_cpu_workspace_bytes(const AttentionShape& shape, runtime::DType /*dtype*/, int threads) {
  return static_cast<std::size_t>(threads) * static_cast<std::size_t>(shape.positions) * 64;
}

void attention_forward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype, void* out,
                           float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* /*workspace*/) {
  const auto T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads),
             D = static_cast<std::size_t>(shape.channels), C = H * D;
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  runtime::with_float_type(dtype, [&](auto type) {
    using E = decltype(type);
    for_each_head(pool, shape, [&](std::size_t b, std::size_t h) {
      const E* q = static_cast<const E*>(qkv) + b * T * 3 * C + h * D;
      const E *k = q + C, *v = q + 2 * C;
      E* o = static_cast<E*>(out) + b * T * C + h * D;
      std::vector<float> p(T), sum(D);
      for (std::size_t i = 0; i < T; ++i) {
        float greatest = -std::numeric_limits<float>::infinity(), total = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          float score = 0;
          for (std::size_t d = 0; d < D; ++d) score += to_float(q[i * 3 * C + d]) * to_float(k[j * 3 * C + d]);
          p[j] = score * scale;
          greatest = std::max(greatest, p[j]);
        }
        for (std::size_t j = 0; j <= i; ++j) total += p[j] = std::exp(p[j] - greatest);
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (std::size_t j = 0; j <= i; ++j) {
          const float weight = p[j] / total * kept_factor(dropout, b, (h * T + i) * T + j);
          for (std::size_t d = 0; d < D; ++d) sum[d] += weight * to_float(v[j * 3 * C + d]);
        }
        for (std::size_t d = 0; d < D; ++d) o[i * C + d] = runtime::from_float<E>(sum[d]);
        logsumexp[(b * H + h) * T + i] = greatest + std::log(total);
      }
    });
  });
}

void attention_backward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype,
                            void* d_qkv, const void* d_out, const void* qkv, const void* out,
                            const float* logsumexp, const Dropout& dropout, std::byte* /*workspace*/) {
  const auto T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads),
             D = static_cast<std::size_t>(shape.channels), C = H * D;
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  runtime::with_float_type(dtype, [&](auto type) {
    using E = decltype(type);
    for_each_head(pool, shape, [&](std::size_t b, std::size_t h) {
      const E* q = static_cast<const E*>(qkv) + b * T * 3 * C + h * D;
      const E *k = q + C, *v = q + 2 * C;
      const E *o = static_cast<const E*>(out) + b * T * C + h * D, *g = static_cast<const E*>(d_out) + b * T * C + h * D;
      std::vector<float> dq(T * D), dk(T * D), dv(T * D);
      for (std::size_t i = 0; i < T; ++i) {
        float delta = 0;
        for (std::size_t d = 0; d < D; ++d) delta += to_float(o[i * C + d]) * to_float(g[i * C + d]);
        for (std::size_t j = 0; j <= i; ++j) {
          float score = 0, dp = 0;
          for (std::size_t d = 0; d < D; ++d) {
            score += to_float(q[i * 3 * C + d]) * to_float(k[j * 3 * C + d]);
            dp += to_float(g[i * C + d]) * to_float(v[j * 3 * C + d]);
          }
          const float p = std::exp(score * scale - logsumexp[(b * H + h) * T + i]);
          const float kept = kept_factor(dropout, b, (h * T + i) * T + j);
          const float ds = p * (dp * kept - delta) * scale;
          for (std::size_t d = 0; d < D; ++d) {
            dq[i * D + d] += ds * to_float(k[j * 3 * C + d]);
            dk[j * D + d] += ds * to_float(q[i * 3 * C + d]);
            dv[j * D + d] += p * kept * to_float(g[i * C + d]);
          }
        }
      }
      E* to = static_cast<E*>(d_qkv) + b * T * 3 * C + h * D;
      for (std::size_t i = 0; i < T; ++i)
        for (std::size_t d = 0; d < D; ++d) {
          to[i * 3 * C + d] = runtime::from_float<E>(dq[i * D + d]);
          to[i * 3 * C + C + d] = runtime::from_float<E>(dk[i * D + d]);
          to[i * 3 * C + 2 * C + d] = runtime::from_float<E>(dv[i * D + d]);
        }
    });
  });
}

}  // namespace ranvier::models
