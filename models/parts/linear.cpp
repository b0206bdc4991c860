#include "models/parts/linear.hpp"

#include "models/lora.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/xxh3.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace ranvier::models {

Linear::Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options)
    : in_(options.in), layout_(options.layout), precision_(options.precision) {
  const bool out_in = layout_ == LinearOptions::Layout::out_in;
  expect(out_in || options.tensors.size() == 1, "{} matrices side by side that are stored [in, out]",
         options.tensors.size());
  for (const auto& [name, channels] : options.tensors) {
    std::vector<std::size_t> shape = out_in ? std::vector{channels, in_} : std::vector{in_, channels};
    append(weights_,
           {out_, channels, builder.add(unit, {name + ".weight", std::move(shape), options.initializer, true})},
           in_);
    out_ += channels;
  }
  if (options.bias) add_biases(builder, unit, options);
  add_adapters(builder, unit, options);
}

void Linear::add_biases(UnitBuilder& builder, std::size_t unit, const LinearOptions& options) {
  std::size_t first = 0;
  for (const auto& [name, channels] : options.tensors) {
    append(biases_, {first, channels, builder.add(unit, {name + ".bias", {channels}, {Initializer::Kind::zeros}})},
           1);
    first += channels;
  }
  if (biases_.size() == 1) return;
  // A product has one bias: where biases have gaps, as weights may not, products are done apart.
  std::vector<Run> apart;
  for (const Run& weight : weights_) {
    for (const Run& bias : biases_) {
      const std::size_t begin = std::max(bias.first, weight.first);
      const std::size_t end = std::min(bias.first + bias.channels, weight.first + weight.channels);
      if (begin >= end) continue;
      apart.push_back(
          {begin, end - begin, {weight.place.unit, weight.place.offset + (begin - weight.first) * in_}});
    }
  }
  weights_ = std::move(apart);
}

void Linear::add_adapters(UnitBuilder& builder, std::size_t unit, const LinearOptions& options) {
  const LoraOptions* const lora = builder.tuning().lora.get();
  if (lora == nullptr) return;
  rank_ = static_cast<std::size_t>(lora->rank);
  factor_ = lora->factor();
  dropout_ = lora->dropout;
  // As PEFT draws A: uniform, of the variance that Kaiming's rule gives with a slope of √5.
  const Initializer uniform{Initializer::Kind::uniform, 1 / std::sqrt(static_cast<float>(in_))};
  std::size_t first = 0;
  for (const auto& [name, channels] : options.tensors) {
    if (lora->adapts(name)) {
      const auto site = static_cast<std::uint32_t>(runtime::xxh3(std::as_bytes(std::span(name))));
      adapters_.push_back({first, channels, builder.add(unit, {lora_a(name), {rank_, in_}, uniform, true}),
                           builder.add(unit, {lora_b(name), {channels, rank_}, {Initializer::Kind::zeros}, true}),
                           site});
    }
    first += channels;
  }
}

Linear::Arrays Linear::plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            std::size_t rows) const {
  if (adapters_.empty()) return {};
  const std::size_t element = size_of(precision_.compute);
  constexpr std::size_t alignment = 64;
  Arrays at;
  at.bytes = (rows * rank_ * element + alignment - 1) / alignment * alignment;
  at.inner = saved.add(adapters_.size(), at.bytes);
  at.d_inner = deferred.add(adapters_.size(), at.bytes);
  if (dropout_ > 0) at.dropped = workspace.add(rows * in_, element);
  return at;
}

const std::byte* Linear::dropped(const LayerCall& call, const Adapter& adapter, const std::byte* x,
                                 const Arrays& at) const {
  if (dropout_ == 0 || !call.training) return x;
  std::byte* const copy = call.workspace + at.dropped;
  runtime::copy(call.stream, copy, x, rows(call) * in_ * size_of(precision_.compute));
  drop(call, adapter, copy);
  return copy;
}

void Linear::drop(const LayerCall& call, const Adapter& adapter, std::byte* values) const {
  dropout(call.stream, values, precision_.compute, call.shape.samples,
          static_cast<std::size_t>(call.shape.positions) * in_,
          make_dropout(dropout_, call.key.seed, call.key.step, adapter.dropout_site, call.key.first_sample));
}

void Linear::adapt(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  const std::size_t N = rows(call);
  std::byte* inner = call.saved + at.inner;
  for (const Adapter& adapter : adapters_) {
    matmul(call.stream, {.m = N, .n = rank_, .k = in_, .transpose_b = true},
           {.c = inner,
            .c_dtype = dtype,
            .a = dropped(call, adapter, x, at),
            .b = parameter(call, adapter.a, dtype),
            .dtype = dtype});
    runtime::scale(call.stream, inner, dtype, factor_, N * rank_);
    matmul(call.stream,
           {.m = N, .n = adapter.channels, .k = rank_, .transpose_b = true, .c_stride = stride_of(adapter)},
           {.c = y + adapter.first * size_of(dtype),
            .c_dtype = dtype,
            .a = inner,
            .b = parameter(call, adapter.b, dtype),
            .dtype = dtype,
            .accumulate = true});
    inner += at.bytes;
  }
}

void Linear::adapt_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  const std::size_t N = rows(call);
  std::byte* d_inner = call.deferred + at.d_inner;
  for (const Adapter& adapter : adapters_) {
    matmul(call.stream, {.m = N, .n = rank_, .k = adapter.channels, .a_stride = stride_of(adapter)},
           {.c = d_inner,
            .c_dtype = dtype,
            .a = dy + adapter.first * size_of(dtype),
            .b = parameter(call, adapter.b, dtype),
            .dtype = dtype});
    runtime::scale(call.stream, d_inner, dtype, factor_, N * rank_);
    std::byte* const to = dropout_ > 0 ? call.workspace + at.dropped : dx;
    matmul(call.stream, {.m = N, .n = in_, .k = rank_},
           {.c = to,
            .c_dtype = dtype,
            .a = d_inner,
            .b = parameter(call, adapter.a, dtype),
            .dtype = dtype,
            .accumulate = to == dx});
    if (to != dx) {
      drop(call, adapter, to);
      runtime::add(call.stream, dx, to, dtype, N * in_);
    }
    d_inner += at.bytes;
  }
}

void Linear::append(std::vector<Run>& runs, const Run& next, std::size_t elements) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.place.unit == next.place.unit && last.place.offset + last.channels * elements == next.place.offset) {
      last.channels += next.channels;
      return;
    }
  }
  runs.push_back(next);
}

const std::byte* Linear::bias_of(const LayerCall& call, const Run& weight) const {
  for (const Run& bias : biases_) {
    if (weight.first < bias.first || weight.first >= bias.first + bias.channels) continue;
    return parameter(call, {bias.place.unit, bias.place.offset + weight.first - bias.first}, precision_.compute);
  }
  return nullptr;
}

std::size_t Linear::scratch_bytes() const { return biases_.size() > 1 ? out_ * sizeof(float) : 0; }

void Linear::forward(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at) const {
  expect(adapters_.empty() || at.bytes > 0, "the layer has planned nothing for its adapters");
  const runtime::DType dtype = precision_.compute;
  for (const Run& run : weights_) {
    matmul(call.stream,
           {.m = rows(call),
            .n = run.channels,
            .k = in_,
            .transpose_b = layout_ == LinearOptions::Layout::out_in,
            .c_stride = weights_.size() > 1 ? out_ : 0},
           {.c = y + run.first * size_of(dtype),
            .c_dtype = dtype,
            .a = x,
            .b = parameter(call, run.place, dtype),
            .dtype = dtype,
            .bias = bias_of(call, run)});
  }
  adapt(call, y, x, at);
}

void Linear::forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend,
                         const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  if (weights_.size() > 1 || has_adapters()) {
    forward(call, y, x, at);
    return runtime::add(call.stream, y, addend, dtype, rows(call) * out_);
  }
  matmul_add(call.stream,
             {.m = rows(call), .n = out_, .k = in_, .transpose_b = layout_ == LinearOptions::Layout::out_in},
             {.c = y,
              .c_dtype = dtype,
              .a = x,
              .b = parameter(call, weights_[0].place, dtype),
              .dtype = dtype,
              .bias = bias_of(call, weights_[0])},
             addend);
}

void Linear::backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  for (const Run& run : weights_) {
    matmul(call.stream,
           {.m = rows(call),
            .n = in_,
            .k = run.channels,
            .transpose_b = layout_ == LinearOptions::Layout::in_out,
            .a_stride = weights_.size() > 1 ? out_ : 0},
           {.c = dx,
            .c_dtype = dtype,
            .a = dy + run.first * size_of(dtype),
            .b = parameter(call, run.place, dtype),
            .dtype = dtype,
            .accumulate = &run != &weights_.front()});
  }
  adapt_backward(call, dx, dy, at);
}

void Linear::backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch,
                             const Arrays& at) const {
  const runtime::DType dtype = precision_.compute, gradient_dtype = precision_.gradient;
  const std::size_t N = rows(call);
  std::size_t inner = 0;
  for (const Adapter& adapter : adapters_) {
    matmul(call.stream,
           {.m = adapter.channels, .n = rank_, .k = N, .transpose_a = true, .a_stride = stride_of(adapter)},
           {.c = gradient(call, adapter.b, gradient_dtype),
            .c_dtype = gradient_dtype,
            .a = dy + adapter.first * size_of(dtype),
            .b = call.saved + at.inner + inner,
            .dtype = dtype,
            .accumulate = call.accumulate});
    matmul(call.stream, {.m = rank_, .n = in_, .k = N, .transpose_a = true},
           {.c = gradient(call, adapter.a, gradient_dtype),
            .c_dtype = gradient_dtype,
            .a = call.deferred + at.d_inner + inner,
            .b = dropped(call, adapter, x, at),
            .dtype = dtype,
            .accumulate = call.accumulate});
    inner += at.bytes;
  }
  const bool has_bias =
      std::any_of(biases_.begin(), biases_.end(), [&](const Run& run) { return is_trained(call, run.place); });
  if (layout_ == LinearOptions::Layout::in_out && is_trained(call, weights_[0].place)) {
    const MatmulShape shape{.m = in_, .n = out_, .k = N, .transpose_a = true};
    const MatmulArrays arrays{.c = gradient(call, weights_[0].place, gradient_dtype),
                              .c_dtype = gradient_dtype,
                              .a = x,
                              .b = dy,
                              .dtype = dtype,
                              .accumulate = call.accumulate};
    if (!has_bias) return matmul(call.stream, shape, arrays);
    return matmul_column_sums(call.stream, shape, arrays,
                              {gradient(call, biases_[0].place, gradient_dtype), gradient_dtype, call.accumulate});
  }
  for (const Run& run : weights_) {
    if (!is_trained(call, run.place)) continue;
    matmul(call.stream,
           {.m = run.channels, .n = in_, .k = N, .transpose_a = true, .a_stride = weights_.size() > 1 ? out_ : 0},
           {.c = gradient(call, run.place, gradient_dtype),
            .c_dtype = gradient_dtype,
            .a = dy + run.first * size_of(dtype),
            .b = x,
            .dtype = dtype,
            .accumulate = call.accumulate});
  }
  if (!has_bias) return;
  if (biases_.size() == 1) {
    return column_sums(call.stream, gradient(call, biases_[0].place, gradient_dtype), gradient_dtype, dy, dtype, N,
                       out_, call.accumulate);
  }
  column_sums(call.stream, scratch, runtime::DType::f32, dy, dtype, N, out_, false);
  for (const Run& run : biases_) {
    if (!is_trained(call, run.place)) continue;
    store_gradient(call.stream, gradient(call, run.place, gradient_dtype), gradient_dtype,
                   floats(scratch) + run.first, run.channels, call.accumulate);
  }
}

}  // namespace ranvier::models
