// cuDNN's attention by its definition. In place of cudnn_attention_cuda.cpp. EMULATED_CUDNN_MISSING=R takes it from
// rank R of a job, EMULATED_CUDNN_VERSION=R gives that rank another one. Work with a handle that is bound to no
// stream, to another one or to one that is gone ends the program with a line on stderr.
#include "models/ops/cudnn_attention_cuda.hpp"
#include "runtime/cuda_native.hpp"
#include "runtime/dtype.hpp"
#include "tests/emulation/stream.hpp"

#include <fmt/core.h>

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

std::optional<cudaStream_t> bound;  // of the one GPU's handle

void expect_bound(runtime::StreamView stream, const char* call) {
  if (bound == runtime::cuda::native(stream) && emulation::is_alive(*bound)) return;
  std::fputs(fmt::format("cuDNN's {} on another stream than its handle is bound to\n", call).c_str(), stderr);
  std::abort();
}

/// What deterministic backward takes: the gradients of all weights; and otherwise: those of all queries.
std::size_t needed_bytes(const AttentionShape& shape, DType dtype, AttentionPass pass) {
  if (pass == AttentionPass::forward) return 256;
  const auto T = static_cast<std::size_t>(shape.positions), padded = (T + 63) / 64 * 64;
  const std::size_t of_head = pass == AttentionPass::backward
                                  ? padded * padded * size_of(dtype)
                                  : T * static_cast<std::size_t>(shape.channels) * sizeof(float);
  return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.heads) *
         (of_head + T * sizeof(float));
}

struct Pass {
  AttentionShape shape;
  DType dtype;
  AttentionPass pass;
  CudnnAttentionArrays arrays;

  void operator()() const {
    // Whatever it may write, it writes.
    std::memset(arrays.workspace, 0xff, needed_bytes(shape, dtype, pass));
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for (int b = 0; b < shape.samples; ++b) {
        for (int h = 0; h < shape.heads; ++h) pass == AttentionPass::forward ? forward<T>(b, h) : backward<T>(b, h);
      }
    });
  }

 private:
  [[nodiscard]] std::size_t place(int b, int t, int parts, int part, int h) const {
    const auto C = static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(shape.channels);
    return (static_cast<std::size_t>(b) * static_cast<std::size_t>(shape.positions) + static_cast<std::size_t>(t)) *
               static_cast<std::size_t>(parts) * C +
           static_cast<std::size_t>(part) * C +
           static_cast<std::size_t>(h) * static_cast<std::size_t>(shape.channels);
  }
  template <typename T>
  [[nodiscard]] std::vector<double> row(const void* array, std::size_t first) const {
    std::vector<double> values;
    for (int d = 0; d < shape.channels; ++d)
      values.push_back(static_cast<double>(
          runtime::to_float(static_cast<const T*>(array)[first + static_cast<std::size_t>(d)])));
    return values;
  }
  template <typename T>
  static void store(void* array, std::size_t first, const std::vector<double>& values) {
    for (std::size_t d = 0; d < values.size(); ++d)
      static_cast<T*>(array)[first + d] = runtime::from_float<T>(static_cast<float>(values[d]));
  }
  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
    return sum;
  }
  static void add(std::vector<double>& to, double factor, const std::vector<double>& from) {
    for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * from[d];
  }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(shape.channels)); }
  [[nodiscard]] std::size_t stats_place(int b, int h, int i) const {
    return static_cast<std::size_t>((b * shape.heads + h) * shape.positions + i);
  }

  template <typename T>
  void forward(int b, int h) const {
    for (int i = 0; i < shape.positions; ++i) {
      const auto query = row<T>(arrays.qkv, place(b, i, 3, 0, h));
      std::vector<double> sums(query.size());
      double total = 0;
      for (int j = 0; j <= i; ++j) {
        const double weight = std::exp(scale() * dot(query, row<T>(arrays.qkv, place(b, j, 3, 1, h))));
        total += weight;
        add(sums, weight, row<T>(arrays.qkv, place(b, j, 3, 2, h)));
      }
      for (double& sum : sums) sum /= total;
      store<T>(arrays.out, place(b, i, 1, 0, h), sums);
      arrays.logsumexp[stats_place(b, h, i)] = static_cast<float>(std::log(total));
    }
  }

  template <typename T>
  void backward(int b, int h) const {
    const auto T_ = static_cast<std::size_t>(shape.positions), D = static_cast<std::size_t>(shape.channels);
    std::vector<std::vector<double>> d_q(T_, std::vector<double>(D)), d_k = d_q, d_v = d_q;
    for (int i = 0; i < shape.positions; ++i) {
      const auto query = row<T>(arrays.qkv, place(b, i, 3, 0, h)),
                 d_out = row<T>(arrays.d_out, place(b, i, 1, 0, h));
      const double mean = dot(d_out, row<T>(arrays.out, place(b, i, 1, 0, h)));
      const auto logsumexp = static_cast<double>(arrays.logsumexp[stats_place(b, h, i)]);
      for (int j = 0; j <= i; ++j) {
        const auto key = row<T>(arrays.qkv, place(b, j, 3, 1, h));
        const double weight = std::exp(scale() * dot(query, key) - logsumexp);
        const double slope = weight * (dot(d_out, row<T>(arrays.qkv, place(b, j, 3, 2, h))) - mean) * scale();
        add(d_q[static_cast<std::size_t>(i)], slope, key);
        add(d_k[static_cast<std::size_t>(j)], slope, query);
        add(d_v[static_cast<std::size_t>(j)], weight, d_out);
      }
    }
    for (int t = 0; t < shape.positions; ++t) {
      store<T>(arrays.d_qkv, place(b, t, 3, 0, h), d_q[static_cast<std::size_t>(t)]);
      store<T>(arrays.d_qkv, place(b, t, 3, 1, h), d_k[static_cast<std::size_t>(t)]);
      store<T>(arrays.d_qkv, place(b, t, 3, 2, h), d_v[static_cast<std::size_t>(t)]);
    }
  }
};

class Emulated final : public CudnnAttention {
 public:
  Emulated(const AttentionShape& shape, DType dtype, AttentionPass pass) : pass_{shape, dtype, pass, {}} {}

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

CudnnPlan plan_cudnn_attention(runtime::StreamView stream, const AttentionShape& shape, DType dtype,
                               AttentionPass pass, std::size_t workspace_bytes) {
  expect_bound(stream, "planning");
  if (needed_bytes(shape, dtype, pass) > workspace_bytes)
    return {.attention = nullptr, .obstacle = "it is too large"};
  return {.attention = std::make_unique<Emulated>(shape, dtype, pass), .obstacle = {}};
}

}  // namespace ranvier::models::cuda
