// Operations of the models at the sizes of two models, and kernels of optimizer, gradients and copies on flat arrays.
// Rates in bytes or operations per second, and as shares of a copy and a large matrix multiplication in the same
// process, on random values. Bytes are those that must be read and written once. Causal attention counts half of T × T;
// `tflops_whole` and `share_whole` count all of it, as MFU usually does. One JSON line per case.
//
//   ops_bench cpu|cuda [bf16|fp16|fp32] [tiny]
//
// A CPU has smaller models, and all of its cores. tiny: sizes for an emulated GPU, whose figures mean nothing.
#include "models/ops/activation.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/attention_choice.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/product_choice.hpp"
#include "runtime/base/philox.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/cores.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/momentum.hpp"
#include "tests/bench/bench.hpp"

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;
using runtime::Buffer;
using runtime::DType;

namespace {

struct Model {
  const char* name;
  std::size_t B, T, H, D, V;  ///< samples, positions, heads, channels per head, stored vocabulary
};

/// Sizes of the cases.
struct Sizes {
  std::vector<Model> models;
  std::size_t copied_bytes, matrix, flat;  ///< bytes of a copy; rows and columns of a matrix; elements of an array
  double round_seconds;
};

const Sizes on_cpu{{{"6x384", 16, 256, 6, 64, 256}, {"gpt2", 4, 256, 12, 64, 50304}},
                   std::size_t{1} << 28,
                   2048,
                   std::size_t{8} << 20,
                   0.03};
const Sizes on_gpu{{{"gpt2", 16, 1024, 12, 64, 50304}, {"1.3B", 4, 2048, 16, 128, 50304}},
                   std::size_t{1} << 30,
                   8192,
                   std::size_t{64} << 20,
                   0.03};
const Sizes tiny{{{"tiny", 1, 64, 2, 64, 128}}, std::size_t{1} << 16, 64, std::size_t{1} << 15, 0};

class Bench {
 public:
  Bench(std::unique_ptr<runtime::Device> device, DType dtype, const Sizes& sizes, bool gpu)
      : gpu_(gpu),
        device_(std::move(device)),
        stream_(device_->make_stream("bench", runtime::StreamWidth::whole)),
        dtype_(dtype),
        element_(size_of(dtype)),
        sizes_(sizes) {}

  void time_ceilings() {
    const std::size_t bytes = sizes_.copied_bytes, n = sizes_.matrix;
    {
      const Buffer from = values(bytes / element_, dtype_), to = values(bytes / element_, dtype_);
      const double seconds = seconds_per_call([&] { runtime::copy(*stream_, to.data(), from.data(), bytes); });
      bytes_per_second_ = 2.0 * static_cast<double>(bytes) / seconds;
      print_case(R"("bench":"ceiling","operation":"copy","device":"{}","gbytes_per_second":{:.4g})",
                 device_->description(), bytes_per_second_ * 1e-9);
    }
    const Buffer a = values(n * n, dtype_), b = values(n * n, dtype_), c = values(n * n, dtype_);
    const double seconds = seconds_per_call([&] {
      matmul(*stream_, {n, n, n},
             {.c = c.data(), .c_dtype = dtype_, .a = a.data(), .b = b.data(), .dtype = dtype_});
    });
    flops_per_second_ = 2.0 * static_cast<double>(n * n * n) / seconds;
    print_case(R"("bench":"ceiling","operation":"matmul","dtype":"{}","tflops":{:.4g})", to_string(dtype_),
               flops_per_second_ * 1e-12);
  }

  /// Kernels on flat arrays: buckets of states, gradient chunks. The arrays are larger than a GPU's caches.
  void time_flat() {
    const std::size_t n = sizes_.flat;
    const Model flat{"flat", n, 1, 1, 1, 1};
    const auto all = static_cast<double>(n);
    const auto element = static_cast<double>(element_);
    const Buffer weights = values(n, DType::f32), m = values(n, DType::f32), v = values(n, DType::f32),
                 gradient = values(n, DType::f32), half = values(n, dtype_), other = values(n, dtype_);
    runtime::fill_zero(*stream_, v.data(), n * sizeof(float));  // the array is a sum of squares
    const auto adamw = [&](std::string_view name, const void* of, DType dtype, void* working) {
      bytes_case(flat, name,
                 all * (24.0 + static_cast<double>(size_of(dtype)) + (working != nullptr ? element : 0)), [&] {
                   runtime::adamw(*stream_,
                                  {.weights = floats(weights),
                                   .m = floats(m),
                                   .v = floats(v),
                                   .gradient = of,
                                   .gradient_dtype = dtype,
                                   .working = working,
                                   .working_dtype = dtype_},
                                  {{0, n, true}}, {.learning_rate = 1e-4});
                 });
    };
    adamw("adamw", gradient.data(), DType::f32, nullptr);
    if (dtype_ != DType::f32) {
      adamw("adamw with a working copy", gradient.data(), DType::f32, other.data());
      adamw("adamw with a working copy and half gradients", half.data(), dtype_, other.data());
      bytes_case(flat, "cast to float", all * (4 + element),
                 [&] { runtime::cast(*stream_, gradient.data(), DType::f32, half.data(), dtype_, n); });
      bytes_case(flat, "cast from float", all * (4 + element),
                 [&] { runtime::cast(*stream_, other.data(), dtype_, gradient.data(), DType::f32, n); });
    }
    // Zero bytes are zeros in all types of states.
    const auto states_case = [&](std::string_view name, DType of_weights, DType of_m, DType of_v) {
      for (const Buffer* const states : {&weights, &m, &v})
        runtime::fill_zero(*stream_, states->data(), states->bytes());
      const std::size_t states = bytes_of(of_weights, n) + bytes_of(of_m, n) + bytes_of(of_v, n);
      bytes_case(flat, name, 4 * all + 2 * static_cast<double>(states), [&] {
        runtime::adamw(*stream_,
                       {.weights = weights.data(),
                        .m = m.data(),
                        .v = v.data(),
                        .gradient = gradient.data(),
                        .weights_dtype = of_weights,
                        .m_dtype = of_m,
                        .v_dtype = of_v},
                       {{0, n, true}}, {.learning_rate = 1e-4});
      });
    };
    states_case("adamw with states in bf16", DType::bf16, DType::bf16, DType::bf16);
    states_case("adamw with moments in int8", DType::f32, DType::i8, DType::u8);
    states_case("adamw with moments in int8, weights in bf16", DType::bf16, DType::i8, DType::u8);
    const auto momentum_case = [&](std::string_view name, DType of_m) {
      const double moments = 2 * static_cast<double>(bytes_of(of_m, n));
      runtime::fill_zero(*stream_, m.data(), m.bytes());
      bytes_case(flat, name, 12 * all + moments, [&] {
        runtime::sgd(*stream_,
                     {.weights = weights.data(), .m = m.data(), .gradient = gradient.data(), .m_dtype = of_m},
                     {{0, n, true}}, {.learning_rate = 1e-4});
      });
    };
    runtime::fill_zero(*stream_, weights.data(), weights.bytes());
    momentum_case("sgd", DType::f32);
    momentum_case("sgd with momentum in int8", DType::i8);
    bytes_case(flat, "scale", 2 * all * element, [&] { runtime::scale(*stream_, half.data(), dtype_, 1.0f, n); });
    bytes_case(flat, "add", 3 * all * element,
               [&] { runtime::add(*stream_, other.data(), half.data(), dtype_, n); });
    bytes_case(flat, "fill_zero", all * 4, [&] { runtime::fill_zero(*stream_, m.data(), n * sizeof(float)); });
    const Buffer squares = values(n / runtime::squares_block_elements, DType::f32), total = values(2, DType::f32);
    bytes_case(flat, "sums_of_squares", all * element,
               [&] { runtime::sums_of_squares(*stream_, floats(squares), half.data(), dtype_, n); });
    bytes_case(flat, "sum of those", 4 * all / runtime::squares_block_elements, [&] {
      runtime::sum(*stream_, reinterpret_cast<double*>(total.data()), floats(squares),
                   n / runtime::squares_block_elements);
    });
    const Buffer pinned = device_->allocate(n * sizeof(float), runtime::MemorySpace::pinned);
    bytes_case(flat, "copy from pinned memory", 4 * all,
               [&] { runtime::copy(*stream_, gradient.data(), pinned.data(), n * sizeof(float)); });
    bytes_case(flat, "copy to pinned memory", 4 * all,
               [&] { runtime::copy(*stream_, pinned.data(), gradient.data(), n * sizeof(float)); });
  }

  void time_passes(const Model& model) {
    const std::size_t N = model.B * model.T, C = model.H * model.D, V = model.V;
    const auto NC = static_cast<double>(N * C * element_);
    const NormShape shape{N, C};
    const Buffer x = values(4 * N * C, dtype_), y = values(4 * N * C, dtype_), z = values(N * C, dtype_),
                 w = values(N * C, dtype_), weight = values(C, dtype_), bias = values(C, dtype_);
    const Buffer mean = values(N, DType::f32), rstd = values(N, DType::f32), sums = values(8 * C, DType::f32);
    const Buffer workspace = device_->allocate(norm_workspace_bytes(shape), runtime::MemorySpace::device);
    NormForward arrays{.y = y.data(),
                       .mean = floats(mean),
                       .rstd = floats(rstd),
                       .x = x.data(),
                       .weight = weight.data(),
                       .bias = bias.data(),
                       .branch = z.data(),
                       .sum = w.data()};
    bytes_case(model, "layer_norm_forward with sum", 4 * NC,
               [&] { norm_forward(*stream_, shape, dtype_, arrays); });
    arrays.branch = nullptr;
    arrays.again = true;
    bytes_case(model, "layer_norm_again", 2 * NC, [&] { norm_forward(*stream_, shape, dtype_, arrays); });
    bytes_case(model, "layer_norm_backward with residual", 4 * NC, [&] {
      norm_backward(*stream_, shape, dtype_,
                    {.dx = y.data(),
                     .sums = floats(sums),
                     .dy = z.data(),
                     .x = x.data(),
                     .mean = floats(mean),
                     .rstd = floats(rstd),
                     .weight = weight.data(),
                     .residual = w.data(),
                     .workspace = workspace.data()});
    });
    bytes_case(model, "gelu_forward", 8 * NC,
               [&] { gelu_forward(*stream_, dtype_, y.data(), x.data(), 4 * N * C); });
    bytes_case(model, "gelu_backward", 16 * NC,
               [&] { gelu_backward(*stream_, dtype_, y.data(), x.data(), x.data(), 4 * N * C); });
    const Dropout dropped = make_dropout(0.1f, 1, 2, 3, 0);
    bytes_case(model, "dropout", 2 * NC,
               [&] { dropout(*stream_, z.data(), dtype_, static_cast<int>(model.B), model.T * C, dropped); });
    for (const std::size_t wide : {1, 3, 4}) {
      bytes_case(model, fmt::format("column_sums of {} C", wide), static_cast<double>(wide) * NC,
                 [&] { column_sums(*stream_, sums.data(), DType::f32, x.data(), dtype_, N, wide * C, false); });
    }

    const EmbeddingShape embedding{model.B, model.T, C, V};
    std::vector<std::int32_t> tokens(N);
    for (std::size_t i = 0; i < N; ++i) tokens[i] = static_cast<std::int32_t>(bits(i) % (V - 47));
    const Buffer token_copies = device_->allocate(N * sizeof(std::int32_t), runtime::MemorySpace::device);
    runtime::copy(*stream_, token_copies.data(), tokens.data(), N * sizeof(std::int32_t));
    stream_->synchronize();
    const auto* const named = reinterpret_cast<const std::int32_t*>(token_copies.data());
    const Buffer table = values(V * C, dtype_), gradient = values(V * C, DType::f32);
    const Buffer order = device_->allocate(N * sizeof(std::int32_t), runtime::MemorySpace::device);
    bytes_case(model, "embedding_forward", 2 * NC,
               [&] { embedding_forward(*stream_, embedding, dtype_, {y.data(), named, table.data(), z.data()}); });
    bytes_case(model, "embedding_backward", NC + 8.0 * static_cast<double>(std::min(N, V) * C), [&] {
      embedding_backward(*stream_, embedding, dtype_,
                         {.tokens_gradient = gradient.data(),
                          .token_rows = V,
                          .d_out = z.data(),
                          .tokens = named,
                          .accumulate = true,
                          .order = reinterpret_cast<std::int32_t*>(order.data())});
    });
    const Buffer logits = values(N * V, dtype_), loss = values(2, DType::f32),
                 row_losses = values(2 * N, DType::f32),
                 exponentials = values(static_cast<std::size_t>(device_->threads()) * V, DType::f32);
    bytes_case(model, "cross_entropy with gradient", 2.0 * static_cast<double>(N * V * element_), [&] {
      cross_entropy(*stream_, {N, V - 47, V}, dtype_,
                    {.logits = logits.data(),
                     .targets = named,
                     .loss = reinterpret_cast<double*>(loss.data()),
                     .gradient = true,
                     .row_losses = reinterpret_cast<double*>(row_losses.data()),
                     .exponentials = floats(exponentials)});
    });
  }

  void time_products(const Model& model) {
    const std::size_t N = model.B * model.T, C = model.H * model.D, V = model.V;
    const std::size_t widest = std::max(V, 4 * C);
    const Buffer a = values(N * widest, dtype_), b = values(widest * C, dtype_), bias = values(widest, dtype_);
    const Buffer c = values(std::max(N * widest, 2 * widest * C), dtype_);
    const auto product = [&](const char* name, MatmulShape shape, DType c_dtype, bool has_bias, bool accumulate) {
      flops_case(model, name, 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n * shape.k), [&] {
        matmul(*stream_, shape,
               {.c = c.data(),
                .c_dtype = c_dtype,
                .a = a.data(),
                .b = b.data(),
                .dtype = dtype_,
                .bias = has_bias ? bias.data() : nullptr,
                .accumulate = accumulate});
      });
    };
    product("qkv forward", {.m = N, .n = 3 * C, .k = C}, dtype_, true, false);
    product("attention projection forward", {.m = N, .n = C, .k = C}, dtype_, true, false);
    product("fc forward", {.m = N, .n = 4 * C, .k = C}, dtype_, true, false);
    product("mlp projection forward", {.m = N, .n = C, .k = 4 * C}, dtype_, true, false);
    product("head forward", {.m = N, .n = V, .k = C, .transpose_b = true}, dtype_, false, false);
    product("fc backward of input", {.m = N, .n = C, .k = 4 * C, .transpose_b = true}, dtype_, false, false);
    product("fc backward of weight", {.m = C, .n = 4 * C, .k = N, .transpose_a = true}, DType::f32, false, true);
    product("projection backward of weight", {.m = C, .n = C, .k = N, .transpose_a = true}, DType::f32, false,
            true);

    // As in training: chosen by measurement beforehand, one after the other.
    const Buffer y = values(4 * N * C, dtype_), sums = values(4 * C, DType::f32);
    const double flops = 8.0 * static_cast<double>(N * C * C);
    const auto fused = [&](const char* name, const std::function<void()>& work) {
      flops_case(model, fmt::format("{}, apart", name), flops, work);
      if constexpr (runtime::with_cuda) {
        if (!gpu_) return;
        (void)measure_products(*stream_, work);
        flops_case(model, fmt::format("{}, as measured", name), flops, work);
      }
    };
    const MatmulArrays plain{.c = c.data(), .c_dtype = dtype_, .a = a.data(), .b = b.data(), .dtype = dtype_};
    MatmulArrays biased = plain, gradient = plain;
    biased.bias = bias.data();
    gradient.c_dtype = DType::f32;
    gradient.accumulate = true;
    fused("fc forward with GELU", [&] { matmul_gelu(*stream_, {N, 4 * C, C}, biased, y.data()); });
    fused("mlp projection forward with addend", [&] { matmul_add(*stream_, {N, C, 4 * C}, biased, y.data()); });
    fused("mlp projection backward of input with GELU's gradient", [&] {
      matmul_gelu_backward(*stream_, {.m = N, .n = 4 * C, .k = C, .transpose_b = true}, plain, y.data(), y.data());
    });
    fused("fc backward of weight and bias", [&] {
      matmul_column_sums(*stream_, {.m = C, .n = 4 * C, .k = N, .transpose_a = true}, gradient,
                         {.sums = sums.data(), .accumulate = true});
    });
  }

  void time_attention(const Model& model) {
    AttentionShape shape{.samples = static_cast<int>(model.B),
                         .positions = static_cast<int>(model.T),
                         .heads = static_cast<int>(model.H),
                         .channels = static_cast<int>(model.D),
                         .kernels = AttentionKernels::cudnn};
    const std::size_t NC = model.B * model.T * model.H * model.D;
    const Buffer qkv = values(3 * NC, dtype_), d_qkv = values(3 * NC, dtype_), out = values(NC, dtype_),
                 d_out = values(NC, dtype_), logsumexp = values(model.B * model.H * model.T, DType::f32);
    const Buffer workspace = device_->allocate(attention_workspace_bytes(shape, dtype_, device_->threads()),
                                               runtime::MemorySpace::device);
    const double flops = 2.0 * static_cast<double>(NC) * static_cast<double>(model.T);
    const auto both = [&](std::string_view with, const Dropout& dropped) {
      const AttentionArrays arrays{.qkv = qkv.data(),
                                   .out = out.data(),
                                   .logsumexp = floats(logsumexp),
                                   .d_out = d_out.data(),
                                   .d_qkv = d_qkv.data(),
                                   .dropout = dropped,
                                   .workspace = workspace.data()};
      const auto forward = [&] { attention_forward(*stream_, shape, dtype_, arrays); };
      const auto backward = [&] { attention_backward(*stream_, shape, dtype_, arrays); };
      if constexpr (runtime::with_cuda) {
        if (shape.kernels == AttentionKernels::cudnn) {
          (void)measure_attention(*stream_, [&] {
            forward();
            backward();
          });
          fmt::print(stderr, "{}\n", attention_description(*stream_));
        }
      }
      flops_case(model, fmt::format("attention_forward{}", with), flops, forward, 2 * flops);
      flops_case(model, fmt::format("attention_backward{}", with), 2.5 * flops, backward, 5 * flops);
    };
    if constexpr (runtime::with_cuda) {
      if (gpu_ && attention_library_obstacle().empty()) both(" by cuDNN where it has kernels", {});
    }
    shape.kernels = AttentionKernels::own;
    both("", {});
    both(" with dropout", make_dropout(0.1f, 1, 2, 3, 0));
  }

 private:
  static float* floats(const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

  static std::uint32_t bits(std::size_t i) {
    return runtime::philox({1, 2}, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0})[0];
  }

  /// Values uniform in [-1, 1), a million of them repeated: a GPU is faster on zeros.
  Buffer values(std::size_t n, DType dtype) {
    const std::size_t bytes = n * size_of(dtype), some = std::min<std::size_t>(n, std::size_t{1} << 20);
    std::vector<std::byte> host(some * size_of(dtype));
    runtime::with_float_type(dtype, [&](auto type) {
      auto* const to = reinterpret_cast<decltype(type)*>(host.data());
      for (std::size_t i = 0; i < some; ++i)
        to[i] = runtime::from_float<decltype(type)>(2 * runtime::uniform(bits(i)) - 1);
    });
    Buffer buffer = device_->allocate(bytes, runtime::MemorySpace::device);
    for (std::size_t at = 0; at < bytes; at += host.size())
      runtime::copy(*stream_, buffer.data() + at, host.data(), std::min(host.size(), bytes - at));
    stream_->synchronize();
    return buffer;
  }

  /// Seconds of the best of three rounds of at least sizes_.round_seconds each, after a warm-up.
  double seconds_per_call(const std::function<void()>& work) {
    const auto round = [&](int times) {
      return seconds_of([&] {
        for (int i = 0; i < times; ++i) work();
        stream_->synchronize();
      });
    };
    round(3);
    const int times = std::clamp(static_cast<int>(sizes_.round_seconds * 5 / round(5)) + 1, 1, 2000);
    double best = round(times);
    for (int i = 0; i < 2; ++i) best = std::min(best, round(times));
    return best / times;
  }

  void bytes_case(const Model& model, std::string_view name, double bytes, const std::function<void()>& work) {
    const double seconds = seconds_per_call(work);
    print_case(R"("bench":"operation","model":"{}","dtype":"{}","operation":"{}","us":{:.1f},)"
               R"("gbytes_per_second":{:.4g},"share_of_copy":{:.3f})",
               model.name, to_string(dtype_), name, seconds * 1e6, bytes / seconds * 1e-9,
               bytes / seconds / bytes_per_second_);
  }

  /// `whole_flops`: FLOP of all T × T, if different.
  void flops_case(const Model& model, std::string_view name, double flops, const std::function<void()>& work,
                  double whole_flops = 0) {
    const double seconds = seconds_per_call(work);
    fmt::print(R"({{"bench":"operation","model":"{}","dtype":"{}","operation":"{}","us":{:.1f},"tflops":{:.4g},)"
               R"("share_of_matmul":{:.3f})",
               model.name, to_string(dtype_), name, seconds * 1e6, flops / seconds * 1e-12,
               flops / seconds / flops_per_second_);
    if (whole_flops > 0) {
      fmt::print(R"(,"tflops_whole":{:.4g},"share_whole":{:.3f})", whole_flops / seconds * 1e-12,
                 whole_flops / seconds / flops_per_second_);
    }
    fmt::print("}}\n");
    std::fflush(stdout);
  }

  bool gpu_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  DType dtype_;
  std::size_t element_;
  const Sizes& sizes_;
  double bytes_per_second_ = 0, flops_per_second_ = 0;
};

std::unique_ptr<runtime::Device> device_of(bool gpu) {
  if (!gpu) return runtime::make_cpu_device({.threads = runtime::available_cores()});
  if constexpr (runtime::with_cuda) return runtime::make_cuda_device();
  fail(ErrorCode::usage, "this build has no CUDA device");
}

void run(const std::vector<std::string>& words) {
  const auto word = [&](std::size_t n) { return n < words.size() ? words[n] : std::string(); };
  const bool gpu = word(0) == "cuda";
  if (!gpu && word(0) != "cpu") fail(ErrorCode::usage, "usage: ops_bench cpu|cuda [bf16|fp16|fp32] [tiny]");
  const DType dtype = word(1) == "fp32" ? DType::f32 : word(1) == "fp16" ? DType::f16 : DType::bf16;
  const Sizes& sizes = word(2) == "tiny" ? tiny : gpu ? on_gpu : on_cpu;
  Bench bench(device_of(gpu), dtype, sizes, gpu);
  bench.time_ceilings();
  bench.time_flat();
  for (const Model& model : sizes.models) {
    bench.time_passes(model);
    bench.time_products(model);
    bench.time_attention(model);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("ops_bench", [&] { run({argv + 1, argv + argc}); });
}
