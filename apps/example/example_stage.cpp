// Example of a custom model: a stack of dense layers that learns a function of eight numbers. It trains on any grid,
// with all applicable flags of ranvier-train:
//
//   mpirun -n 4 ranvier-example-stage --g-inter 2 --g-data 2 --layers 6 --hidden 64 --steps 200
//
// A custom stage needs one class derived from models::Layer: parameters as data, memory as data, and three computing
// methods. Ranvier adds messages, schedules, reductions, the optimizer and files.
#include "apps/train/launch.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/philox.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <array>
#include <cmath>
#include <cstring>

namespace {

using namespace ranvier;
using models::LayerCall;
using runtime::DType;

constexpr std::size_t features = 8;

/// Calls f(value index) for n values on the stream, divided among the device's threads. The stated cost, three accesses
/// per value, is for predictions.
template <typename F>
void for_each(runtime::StreamView stream, DType dtype, std::size_t n, F f) {
  const runtime::WorkCost cost = runtime::elementwise_cost(3 * n * runtime::size_of(dtype), dtype);
  stream.launch(cost, [n, f](runtime::ComputePool& pool) {
    pool.run([&](int thread, int threads) {
      const auto [begin, end] = runtime::share_of(n, thread, threads, 64);
      for (std::size_t i = begin; i < end; ++i) f(i);
    });
  });
}

/// output[B, N] = tanh(input[B, K] · W[K, N] + b[N]), or without the tanh.
class Dense : public models::Layer {
 public:
  Dense(std::string name, std::size_t k, std::size_t n, bool activated, bool first, models::Precision precision)
      : Layer(std::move(name)), k_(k), n_(n), activated_(activated), first_(first), precision_(precision) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(k));
    set_units({{.name = this->name(),
                .parameters = {{.name = this->name() + ".weight",
                                .shape = {k, n},
                                .initializer = {models::Initializer::Kind::normal, scale},
                                .decays = true},
                               {.name = this->name() + ".bias", .shape = {n}}}}});
  }

  double flops_per_sample(int) const override { return 6.0 * static_cast<double>(k_ * n_); }
  std::size_t output_elements(int) const override { return n_; }

  models::LayerMemory memory(models::MicrobatchShape shape) const override {
    return {.saved = rows(shape) * (n_ + k_) * element(), .deferred = rows(shape) * n_ * element(), .workspace = 0};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const std::size_t n = rows(call.shape) * n_;
    const std::byte* x = input;
    if (first_) {  // the source returns floats
      runtime::cast(call.stream, saved_input(call), precision_.compute, input, DType::f32, rows(call.shape) * k_);
      x = saved_input(call);
    }
    models::matmul(call.stream, {.m = rows(call.shape), .n = n_, .k = k_},
                   {.c = output,
                    .c_dtype = precision_.compute,
                    .a = x,
                    .b = weight(call),
                    .dtype = precision_.compute,
                    .bias = bias(call)});
    if (!activated_) return;
    runtime::with_float_type(precision_.compute, [&](auto type) {
      using T = decltype(type);
      for_each(call.stream, precision_.compute, n,
               [y = reinterpret_cast<T*>(output), kept = reinterpret_cast<T*>(call.saved)](auto i) {
                 y[i] = kept[i] = runtime::from_float<T>(std::tanh(runtime::to_float(y[i])));
               });
    });
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const std::size_t n = rows(call.shape) * n_;
    runtime::with_float_type(precision_.compute, [&](auto type) {
      using T = decltype(type);
      for_each(call.stream, precision_.compute, n,
               [dz = reinterpret_cast<T*>(call.deferred), dy = reinterpret_cast<const T*>(output_gradient),
                y = reinterpret_cast<const T*>(call.saved), activated = activated_](auto i) {
                 const float slope = activated ? 1 - runtime::to_float(y[i]) * runtime::to_float(y[i]) : 1;
                 dz[i] = runtime::from_float<T>(runtime::to_float(dy[i]) * slope);
               });
    });
    if (input_gradient == nullptr) return;
    models::matmul(call.stream, {.m = rows(call.shape), .n = k_, .k = n_, .transpose_b = true},
                   {.c = input_gradient,
                    .c_dtype = precision_.compute,
                    .a = call.deferred,
                    .b = weight(call),
                    .dtype = precision_.compute});
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const std::byte* x = first_ ? saved_input(call) : input;
    models::matmul(call.stream, {.m = k_, .n = n_, .k = rows(call.shape), .transpose_a = true},
                   {.c = call.gradients[0],
                    .c_dtype = precision_.gradient,
                    .a = x,
                    .b = call.deferred,
                    .dtype = precision_.compute,
                    .accumulate = call.accumulate});
    models::column_sums(
        call.stream, call.gradients[0] + units()[0].offset(1) * runtime::size_of(precision_.gradient),
        precision_.gradient, call.deferred, precision_.compute, rows(call.shape), n_, call.accumulate);
  }

 private:
  static std::size_t rows(models::MicrobatchShape shape) { return static_cast<std::size_t>(shape.samples); }
  std::size_t element() const { return runtime::size_of(precision_.compute); }
  std::byte* saved_input(const LayerCall& call) const { return call.saved + rows(call.shape) * n_ * element(); }
  const std::byte* weight(const LayerCall& call) const { return call.parameters[0]; }
  const std::byte* bias(const LayerCall& call) const {
    return call.parameters[0] + units()[0].offset(1) * element();
  }

  std::size_t k_, n_;
  bool activated_, first_;
  models::Precision precision_;
};

/// Last layer: squared distance between its single input and the target. No parameters.
class SquaredError : public models::Layer {
 public:
  explicit SquaredError(models::Precision precision) : Layer("squared error"), precision_(precision) {}

  double flops_per_sample(int) const override { return 5; }
  std::size_t output_elements(int) const override { return 0; }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {}; }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    const std::size_t bytes = static_cast<std::size_t>(call.shape.samples) * 2 * sizeof(float);
    runtime::with_float_type(precision_.compute, [&](auto type) {
      call.stream.launch(runtime::elementwise_cost(bytes),
                         [call, x = reinterpret_cast<const decltype(type)*>(input)](runtime::ComputePool&) {
                           double sum = 0;
                           for (int b = 0; b < call.shape.samples; ++b)
                             sum += std::pow(double{runtime::to_float(x[b])} - targets(call)[b], 2);
                           *call.loss = sum * call.loss_factor;
                         });
    });
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte*,
                      std::byte* gradient) override {
    runtime::with_float_type(precision_.compute, [&](auto type) {
      using T = decltype(type);
      const auto factor = static_cast<float>(2 * call.loss_factor * double{call.loss_scale});
      for_each(call.stream, precision_.compute, static_cast<std::size_t>(call.shape.samples),
               [x = reinterpret_cast<const T*>(input), target = targets(call), factor,
                out = reinterpret_cast<T*>(gradient)](auto i) {
                 out[i] = runtime::from_float<T>(factor * (runtime::to_float(x[i]) - target[i]));
               });
    });
  }

  void backward_weight(const LayerCall&, const std::byte*) override {}

 private:
  static const float* targets(const LayerCall& call) { return reinterpret_cast<const float*>(call.targets); }

  models::Precision precision_;
};

/// Random points of a cube and a smooth function of them, computed from the sample number: equal on all ranks.
class Samples final : public models::SampleSource {
 public:
  std::int64_t samples() const override { return 4096; }
  std::size_t input_bytes() const override { return features * sizeof(float); }
  std::size_t target_bytes() const override { return sizeof(float); }
  std::int64_t losses_per_sample() const override { return 1; }

  void read_input(std::int64_t n, std::byte* to) const override { std::memcpy(to, point(n).data(), input_bytes()); }
  void read_target(std::int64_t n, std::byte* to) const override {
    const auto x = point(n);
    const float y = std::sin(3 * x[0] + x[1]) + x[2] * x[3] - 0.5f * std::cos(2 * x[4]) * x[5];
    std::memcpy(to, &y, sizeof y);
  }

 private:
  std::array<float, features> point(std::int64_t n) const {
    std::array<float, features> x;
    for (std::uint32_t i = 0; i < features; ++i) {
      const auto bits = runtime::philox({1, 2}, {static_cast<std::uint32_t>(n % samples()), i, 0, 0});
      x[i] = 2 * runtime::uniform(bits[0]) - 1;
    }
    return x;
  }
};

apps::Job make_job(const apps::TrainOptions& options) {
  const auto hidden = static_cast<std::size_t>(options.model.gpt().hidden);
  const int layers = options.model.gpt().layers;
  const models::Precision precision = options.trainer.precision;
  apps::Job job;
  job.architecture.precision = precision;
  job.architecture.name = fmt::format("{} dense layers of {}", layers, hidden);
  for (int l = 0; l < layers; ++l) {
    job.architecture.layers.push_back(std::make_unique<Dense>(
        fmt::format("dense.{}", l), l == 0 ? features : hidden, hidden, true, l == 0, precision));
  }
  job.architecture.layers.push_back(std::make_unique<Dense>("output", hidden, 1, false, false, precision));
  job.architecture.layers.push_back(std::make_unique<SquaredError>(precision));
  job.source = std::make_unique<Samples>();
  job.sample = job.source->sample_bytes();
  return job;
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("ranvier-example-stage", argc, argv, make_job); }
