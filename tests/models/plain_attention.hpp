// Attention by its definition, in double: the reference for kernels.
#pragma once

#include "models/ops/attention.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/reference_dropout.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

using Doubles = std::vector<double>;

/// Positions of all samples.
inline std::size_t rows_of(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
}
/// Elements of the output.
inline std::size_t elements_of(const AttentionShape& shape) {
  return rows_of(shape) * static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(shape.channels);
}

/// AttentionBounds on the host; empty: null.
struct HostBounds {
  std::vector<std::int32_t> first_key, end_key;

  [[nodiscard]] AttentionBounds at(DeviceCopies& copies) const {
    return {first_key.empty() ? nullptr : copies(first_key), end_key.empty() ? nullptr : copies(end_key)};
  }
};

/// Attention by its definition, in double.
struct PlainAttention {
  AttentionShape shape;
  Dropout dropout;
  HostBounds bounds = {};
  std::size_t T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads),
              K = static_cast<std::size_t>(shape.stored_key_heads()), D = static_cast<std::size_t>(shape.channels),
              C = H * D, row = shape.row_channels();

  bool sees(std::size_t b, std::size_t i, std::size_t j) const {
    if (shape.causal && j > i) return false;
    if (shape.window > 0 && j + static_cast<std::size_t>(shape.window) <= i) return false;
    const auto key = static_cast<std::int32_t>(j);
    if (!bounds.first_key.empty() && key < bounds.first_key[b * T + i]) return false;
    return bounds.end_key.empty() || key < bounds.end_key[b * T + i];
  }

  /// Zero for invisible keys.
  Doubles weights_of(const Doubles& qkv, std::size_t b, std::size_t h, std::size_t i, double* logsumexp) const {
    Doubles weights(T);
    double total = 0;
    for (std::size_t j = 0; j < T; ++j) {
      if (!sees(b, i, j)) continue;
      double score = 0;
      for (std::size_t d = 0; d < D; ++d) score += at(qkv, b, i, 0, h, d) * at(qkv, b, j, 1, h, d);
      weights[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
      total += weights[j];
    }
    for (double& weight : weights) weight /= total;
    if (logsumexp != nullptr) *logsumexp = std::log(total);
    return weights;
  }

  double at(const Doubles& qkv, std::size_t b, std::size_t t, std::size_t which, std::size_t h,
            std::size_t d) const {
    return qkv[place(b, t, which, h, d)];
  }
  /// Element of query h, or of the key or value that it reads.
  std::size_t place(std::size_t b, std::size_t t, std::size_t which, std::size_t h, std::size_t d) const {
    const std::size_t head = which == 0 ? h : H + (which - 1) * K + h * K / H;
    return (b * T + t) * row + head * D + d;
  }

  double kept(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const {
    return dropout_factor(dropout, static_cast<std::int64_t>(b), (h * T + i) * T + j);
  }

  template <typename Visit>
  void for_each_row(const Visit& visit) const {
    for (std::size_t b = 0; b < static_cast<std::size_t>(shape.samples); ++b)
      for (std::size_t h = 0; h < H; ++h)
        for (std::size_t i = 0; i < T; ++i) visit(b, h, i);
  }

  void forward(const Doubles& qkv, Doubles& out, Doubles& logsumexp) const {
    out.assign(qkv.size() / row * C, 0);
    logsumexp.assign(static_cast<std::size_t>(shape.samples) * H * T, 0);
    for_each_row([&](std::size_t b, std::size_t h, std::size_t i) {
      const Doubles weights = weights_of(qkv, b, h, i, &logsumexp[(b * H + h) * T + i]);
      for (std::size_t j = 0; j < T; ++j) {
        if (weights[j] == 0) continue;
        const double weight = weights[j] * kept(b, h, i, j);
        for (std::size_t d = 0; d < D; ++d) out[(b * T + i) * C + h * D + d] += weight * at(qkv, b, j, 2, h, d);
      }
    });
  }

  Doubles backward(const Doubles& qkv, const Doubles& d_out) const {
    Doubles d_qkv(qkv.size());
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    for_each_row([&](std::size_t b, std::size_t h, std::size_t i) {
      const Doubles weights = weights_of(qkv, b, h, i, nullptr);
      Doubles gradients(T);
      double mean = 0;
      Doubles kept_weights(T);
      for (std::size_t j = 0; j < T; ++j) {
        if (weights[j] == 0) continue;
        const double factor = kept(b, h, i, j);
        for (std::size_t d = 0; d < D; ++d)
          gradients[j] += d_out[(b * T + i) * C + h * D + d] * at(qkv, b, j, 2, h, d) * factor;
        mean += weights[j] * gradients[j];
        kept_weights[j] = weights[j] * factor;
      }
      for (std::size_t j = 0; j < T; ++j) {
        if (weights[j] == 0) continue;
        for (std::size_t d = 0; d < D; ++d) {
          const double gradient = weights[j] * (gradients[j] - mean) * scale;
          d_qkv[place(b, i, 0, h, d)] += gradient * at(qkv, b, j, 1, h, d);
          d_qkv[place(b, j, 1, h, d)] += gradient * at(qkv, b, i, 0, h, d);
          d_qkv[place(b, j, 2, h, d)] += kept_weights[j] * d_out[(b * T + i) * C + h * D + d];
        }
      }
    });
    return d_qkv;
  }
};

/// Random inputs of both passes of attention, and their outputs.
struct AttentionRun {
  explicit AttentionRun(const AttentionShape& s, runtime::DType type = runtime::DType::bf16, std::uint64_t seed = 1)
      : shape(s),
        dtype(type),
        qkv(type, rows_of(s) * s.row_channels(), seed),
        d_out(type, elements_of(s), seed + 1) {}

  [[nodiscard]] AttentionArrays arrays(DeviceCopies& at, std::byte* workspace, const Dropout& dropout = {},
                                       const HostBounds& bounds = {}) {
    return {.qkv = at(std::as_const(qkv)),
            .out = at(out),
            .logsumexp = at.floats(logsumexp),
            .d_out = at(std::as_const(d_out)),
            .d_qkv = at(d_qkv),
            .dropout = dropout,
            .workspace = workspace,
            .bounds = bounds.at(at)};
  }

  void run(runtime::StreamView stream, const Dropout& dropout = {}, const HostBounds& bounds = {}) {
    DeviceCopies at(stream);
    const std::size_t bytes = attention_workspace_bytes(shape, dtype, stream.device().threads());
    const AttentionArrays all = arrays(at, at.scratch(bytes), dropout, bounds);
    attention_forward(stream, shape, dtype, all);
    attention_backward(stream, shape, dtype, all);
    at.fetch();
  }

  AttentionShape shape;
  runtime::DType dtype;
  TypedArray qkv, d_out;
  TypedArray out = TypedArray(dtype, elements_of(shape)), d_qkv = TypedArray(dtype, qkv.size());
  TypedArray logsumexp =
      TypedArray(runtime::DType::f32, elements_of(shape) / static_cast<std::size_t>(shape.channels));
};

inline bool same_bits(const AttentionRun& a, const AttentionRun& b) {
  return same_bits(a.out, b.out) && same_bits(a.logsumexp, b.logsumexp) && same_bits(a.d_qkv, b.d_qkv);
}

/// Root mean square of the difference, relative to `expected`.
inline double relative_error(const TypedArray& values, const Doubles& expected) {
  double error = 0, square = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  return std::sqrt(error / std::max(square, 1e-30));
}

}  // namespace ranvier::models
