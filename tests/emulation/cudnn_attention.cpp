// cuDNN's attention by its definition. Replaces cudnn_attention_cuda.cpp. EMULATED_CUDNN_MISSING=R removes it from rank
// R of a job, EMULATED_CUDNN_VERSION=R gives that rank another version. Work with a handle that is bound to no stream,
// to another one or to a destroyed one ends the program with a line on stderr.
#include "models/ops/cudnn_attention_cuda.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/cuda_native.hpp"
#include "tests/emulation/stream.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace ranvier::models::cuda {
namespace {

using runtime::DType;

bool is_for_this_rank(const char* variable) {
  const char *const asked = std::getenv(variable), *const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return asked != nullptr && std::string_view(asked) == (rank != nullptr ? rank : "0");
}

std::optional<cudaStream_t> bound;  // stream of the GPU's only handle

void expect_bound(runtime::StreamView stream, const char* call) {
  if (bound == runtime::cuda::native(stream) && emulation::is_alive(*bound)) return;
  std::fputs(fmt::format("cuDNN's {} on another stream than its handle is bound to\n", call).c_str(), stderr);
  std::abort();
}

/// Bytes of workspace of a pass. A deterministic one keeps the gradients of all weights, a fast one the gradients
/// of all queries. If heads share keys, both keep gradients of keys and values for each head of queries.
std::size_t needed_bytes(const AttentionShape& shape, DType dtype, AttentionPass pass) {
  if (pass == AttentionPass::forward) return 256;
  const auto T = static_cast<std::size_t>(shape.positions), padded = (T + 63) / 64 * 64,
             D = static_cast<std::size_t>(shape.channels);
  std::size_t of_head = T * sizeof(float);
  of_head += pass == AttentionPass::backward ? padded * padded * size_of(dtype) : T * D * sizeof(float);
  if (shape.stored_key_heads() < shape.heads) of_head += 2 * T * D * size_of(dtype);
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.heads) * of_head;
}

struct Pass {
  AttentionShape shape;
  CudnnRows rows;
  DType dtype;
  AttentionPass pass;
  CudnnAttentionArrays arrays;

  void operator()() const {
    // Overwrites all memory that it may write.
    std::memset(arrays.workspace, 0xff, needed_bytes(shape, dtype, pass));
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for (int b = 0; b < shape.samples; ++b) {
        for (int k = 0; k < shape.stored_key_heads(); ++k)
          pass == AttentionPass::forward ? forward<T>(b, k) : backward<T>(b, k);
      }
    });
  }

 private:
  using Vector = std::vector<double>;

  /// First element of a head's row, in an array with rows of `heads_of_row` heads.
  [[nodiscard]] std::size_t place(int b, int t, int heads_of_row, int h) const {
    const auto row =
        static_cast<std::size_t>(b) * static_cast<std::size_t>(shape.positions) + static_cast<std::size_t>(t);
    return (row * static_cast<std::size_t>(heads_of_row) + static_cast<std::size_t>(h)) *
           static_cast<std::size_t>(shape.channels);
  }
  [[nodiscard]] std::size_t wide(int b, int t, int h) const {
    return place(b, t, rows.heads + 2 * rows.key_heads, h);
  }
  [[nodiscard]] std::size_t narrow(int b, int t, int h) const { return place(b, t, rows.heads, h); }
  template <typename T>
  [[nodiscard]] Vector row(const void* array, std::size_t first) const {
    Vector values;
    for (int d = 0; d < shape.channels; ++d)
      values.push_back(static_cast<double>(
          runtime::to_float(static_cast<const T*>(array)[first + static_cast<std::size_t>(d)])));
    return values;
  }
  template <typename T>
  static void store(void* array, std::size_t first, const Vector& values) {
    for (std::size_t d = 0; d < values.size(); ++d)
      static_cast<T*>(array)[first + d] = runtime::from_float<T>(static_cast<float>(values[d]));
  }
  static double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
    return sum;
  }
  static void add(Vector& to, double factor, const Vector& from) {
    for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * from[d];
  }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(shape.channels)); }
  [[nodiscard]] int sharing() const { return shape.heads / shape.stored_key_heads(); }
  [[nodiscard]] int first_key(int i) const { return shape.window > 0 ? std::max(i + 1 - shape.window, 0) : 0; }
  [[nodiscard]] int end_key(int i) const { return shape.causal ? i + 1 : shape.positions; }
  [[nodiscard]] std::size_t stats_place(int b, int h, int i) const {
    return static_cast<std::size_t>((b * shape.heads + h) * shape.positions + i);
  }
  template <typename T>
  [[nodiscard]] std::vector<Vector> rows_of(const void* array, int b, int k) const {
    std::vector<Vector> all;
    for (int t = 0; t < shape.positions; ++t) all.push_back(row<T>(array, wide(b, t, k)));
    return all;
  }

  /// Computes the heads of queries that attend with head k of keys.
  template <typename T>
  void forward(int b, int k) const {
    const std::vector<Vector> keys = rows_of<T>(arrays.k, b, k), values = rows_of<T>(arrays.v, b, k);
    for (int h = k * sharing(); h < (k + 1) * sharing(); ++h) {
      for (int i = 0; i < shape.positions; ++i) {
        const Vector query = row<T>(arrays.q, wide(b, i, h));
        Vector sums(query.size());
        double total = 0;
        for (int j = first_key(i); j < end_key(i); ++j) {
          const double weight = std::exp(scale() * dot(query, keys[static_cast<std::size_t>(j)]));
          total += weight;
          add(sums, weight, values[static_cast<std::size_t>(j)]);
        }
        for (double& sum : sums) sum /= total;
        store<T>(arrays.out, narrow(b, i, h), sums);
        arrays.logsumexp[stats_place(b, h, i)] = static_cast<float>(std::log(total));
      }
    }
  }

  template <typename T>
  void backward(int b, int k) const {
    const std::vector<Vector> keys = rows_of<T>(arrays.k, b, k), values = rows_of<T>(arrays.v, b, k);
    std::vector<Vector> d_keys(keys.size(), Vector(keys.front().size())), d_values = d_keys;
    for (int h = k * sharing(); h < (k + 1) * sharing(); ++h) {
      for (int i = 0; i < shape.positions; ++i) {
        const Vector query = row<T>(arrays.q, wide(b, i, h)), d_out = row<T>(arrays.d_out, narrow(b, i, h));
        const double mean = dot(d_out, row<T>(arrays.out, narrow(b, i, h)));
        const auto logsumexp = static_cast<double>(arrays.logsumexp[stats_place(b, h, i)]);
        Vector d_query(query.size());
        for (auto j = static_cast<std::size_t>(first_key(i)); j < static_cast<std::size_t>(end_key(i)); ++j) {
          const double weight = std::exp(scale() * dot(query, keys[j]) - logsumexp);
          const double slope = weight * (dot(d_out, values[j]) - mean) * scale();
          add(d_query, slope, keys[j]);
          add(d_keys[j], slope, query);
          add(d_values[j], weight, d_out);
        }
        store<T>(arrays.d_q, wide(b, i, h), d_query);
      }
    }
    for (int t = 0; t < shape.positions; ++t) {
      store<T>(arrays.d_k, wide(b, t, k), d_keys[static_cast<std::size_t>(t)]);
      store<T>(arrays.d_v, wide(b, t, k), d_values[static_cast<std::size_t>(t)]);
    }
  }
};

class Emulated final : public CudnnAttention {
 public:
  Emulated(const AttentionShape& shape, const CudnnRows& rows, DType dtype, AttentionPass pass)
      : pass_{shape, rows, dtype, pass, {}} {}

  void run(runtime::StreamView stream, const CudnnAttentionArrays& arrays) override {
    expect_bound(stream, "attention");
    Pass queued = pass_;
    queued.arrays = arrays;
    emulation::queue(runtime::cuda::native(stream), queued);
  }

 private:
  Pass pass_;
};

}  // namespace

bool built_with_cudnn() { return true; }

std::string cudnn_obstacle() {
  return is_for_this_rank("EMULATED_CUDNN_MISSING") ? "the emulated cuDNN was taken away" : "";
}

std::size_t cudnn_version() {
  return !cudnn_obstacle().empty() ? 0 : is_for_this_rank("EMULATED_CUDNN_VERSION") ? 90800 : 91900;
}

void bind_cudnn(runtime::StreamView stream) { bound = runtime::cuda::native(stream); }

void unbind_cudnn(runtime::StreamView) noexcept { bound.reset(); }

CudnnPlan plan_cudnn_attention(runtime::StreamView stream, const AttentionShape& shape, const CudnnRows& rows,
                               DType dtype, AttentionPass pass, std::size_t workspace_bytes) {
  expect_bound(stream, "planning");
  if (needed_bytes(shape, dtype, pass) > workspace_bytes)
    return {.attention = nullptr, .obstacle = "it is too large"};
  return {.attention = std::make_unique<Emulated>(shape, rows, dtype, pass), .obstacle = {}};
}

}  // namespace ranvier::models::cuda
