// Adapters of linear.cpp's linear maps.
#include "models/core/lora.hpp"
#include "models/modules/linear.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <cmath>
#include <cstdint>
#include <span>

namespace ranvier::models {

void Linear::add_adapters(UnitBuilder& builder, std::size_t unit, const LinearOptions& options) {
  const LoraOptions* const lora = builder.tuning().lora.get();
  if (lora == nullptr || !options.adapts) return;
  rank_ = static_cast<std::size_t>(lora->rank);
  factor_ = lora->factor();
  dropout_ = lora->dropout;
  // PEFT's initialization of A: uniform, with the variance of Kaiming's rule for a slope of √5.
  const Initializer uniform{Initializer::Kind::uniform, 1 / std::sqrt(static_cast<float>(in_))};
  const auto matrix = [](const std::string& name, std::size_t rows, std::size_t columns,
                         const Initializer& values) {
    return ParameterSpec{.name = name,
                         .shape = {rows, columns},
                         .initializer = values,
                         .decays = true,
                         .matrices = {{.rows = rows, .columns = columns}}};
  };
  std::size_t first = 0;
  for (const auto& [name, channels, parts] : options.tensors) {
    if (lora->adapts(name)) {
      const auto site = static_cast<std::uint32_t>(runtime::xxh3(std::as_bytes(std::span(name))));
      adapters_.push_back({first, channels, outputs_apart() ? parts : 1,
                           builder.add(unit, matrix(lora_a(name), rank_, in_, uniform)),
                           builder.add(unit, matrix(lora_b(name), channels, rank_, {Initializer::Kind::zeros})),
                           site});
    }
    first += channels;
  }
}

Linear::Arrays Linear::plan(CallMemory& memory, std::size_t rows, std::size_t scratch) const {
  Arrays at{.scratch = scratch};
  if (adapters_.empty()) return at;
  const std::size_t element = size_of(dtype_);
  constexpr std::size_t alignment = 64;
  at.bytes = runtime::round_up(rows * rank_ * element, alignment);
  at.inner = memory.saved.add(adapters_.size(), at.bytes);
  at.d_inner = memory.deferred.add(adapters_.size(), at.bytes);
  if (dropout_ > 0) at.dropped = memory.workspace.add(rows * in_, element);
  if (sums_outputs()) at.joined = memory.workspace.add(rows * in_, element);
  if (outputs_apart() && dtype_ != runtime::DType::f32)
    at.sums = memory.workspace.add(adapters_.size() * rows * rank_, sizeof(float));
  return at;
}

const std::byte* Linear::dropped(const LayerCall& call, const Adapter& adapter, const std::byte* x,
                                 const Arrays& at) const {
  if (dropout_ == 0 || !call.training) return x;
  std::byte* const copy = call.workspace + at.dropped;
  runtime::copy(call.stream, copy, x, rows(call) * in_ * size_of(dtype_));
  drop(call, adapter, copy);
  return copy;
}

void Linear::drop(const LayerCall& call, const Adapter& adapter, std::byte* values) const {
  dropout(call.stream, values, dtype_, call.shape.samples, static_cast<std::size_t>(call.shape.positions) * in_,
          dropout_at(call, dropout_, adapter.dropout_site));
}

Linear::AdaptedOutputs Linear::outputs_of(const Adapter& adapter, std::size_t tile, std::size_t part) const {
  const std::size_t shares = outputs_apart() ? tiles_.size() : 1;
  const std::size_t of_part = adapter.channels / adapter.parts, channels = of_part / shares;
  return {channels, part * of_part + (shares > 1 ? tile * channels : 0), adapter.first / shares + part * channels,
          channels < row_ ? row_ : 0};
}

void Linear::adapt(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at,
                   std::size_t tile) const {
  if (adapters_.empty()) return;
  if (sums_outputs()) join(call, x, at, tile);
  if (tile == (sums_outputs() ? tiles_.size() - 1 : 0))
    adapt_inputs(call, sums_outputs() ? call.workspace + at.joined : x, at);
  if (outputs_apart() || is_last(tile)) adapt_outputs(call, y, at, tile);
}

void Linear::adapt_inputs(const LayerCall& call, const std::byte* x, const Arrays& at) const {
  const std::size_t N = rows(call);
  std::byte* inner = call.saved + at.inner;
  for (const Adapter& adapter : adapters_) {
    matmul(call.stream, {.m = N, .n = rank_, .k = in_, .transpose_b = true},
           {.c = inner,
            .c_dtype = dtype_,
            .a = dropped(call, adapter, x, at),
            .b = parameter(call, adapter.a, dtype_),
            .dtype = dtype_});
    runtime::scale(call.stream, inner, dtype_, factor_, N * rank_);
    inner += at.bytes;
  }
}

void Linear::adapt_outputs(const LayerCall& call, std::byte* y, const Arrays& at, std::size_t tile) const {
  const std::byte* inner = call.saved + at.inner;
  for (const Adapter& adapter : adapters_) {
    for (std::size_t part = 0; part < adapter.parts; ++part) {
      const AdaptedOutputs outputs = outputs_of(adapter, tile, part);
      matmul(call.stream,
             {.m = rows(call), .n = outputs.channels, .k = rank_, .transpose_b = true, .c_stride = outputs.stride},
             {.c = y + outputs.column * size_of(dtype_),
              .c_dtype = dtype_,
              .a = inner,
              .b = parameter(call, adapter.b, dtype_) + outputs.first_row * rank_ * size_of(dtype_),
              .dtype = dtype_,
              .accumulate = true});
    }
    inner += at.bytes;
  }
}

void Linear::adapt_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at,
                            std::size_t tile) const {
  if (adapters_.empty()) return;
  const std::size_t N = rows(call);
  if (outputs_apart() || tile == 0) adapt_d_inner(call, dy, at, tile);
  if (!sums_outputs()) {
    if (is_last(tile)) adapt_d_inputs(call, dx, at);
    return;
  }
  std::byte* const joined = call.workspace + at.joined;
  if (tile == 0) {
    runtime::fill_zero(call.stream, joined, N * in_ * size_of(dtype_));
    adapt_d_inputs(call, joined, at);
  }
  runtime::add(call.stream, dx, joined + tile * tile_in_ * size_of(dtype_), dtype_, N * tile_in_, {},
               {.run = tile_in_, .stride = in_});
}

void Linear::adapt_d_inner(const LayerCall& call, const std::byte* dy, const Arrays& at, std::size_t tile) const {
  const std::size_t N = rows(call);
  const bool sums = outputs_apart() && dtype_ != runtime::DType::f32;
  const bool is_whole = !outputs_apart() || is_last(tile);
  std::byte* d_inner = call.deferred + at.d_inner;
  std::byte* sum = call.workspace + at.sums;
  for (const Adapter& adapter : adapters_) {
    for (std::size_t part = 0; part < adapter.parts; ++part) {
      const AdaptedOutputs outputs = outputs_of(adapter, tile, part);
      matmul(call.stream, {.m = N, .n = rank_, .k = outputs.channels, .a_stride = outputs.stride},
             {.c = sums ? sum : d_inner,
              .c_dtype = sums ? runtime::DType::f32 : dtype_,
              .a = dy + outputs.column * size_of(dtype_),
              .b = parameter(call, adapter.b, dtype_) + outputs.first_row * rank_ * size_of(dtype_),
              .dtype = dtype_,
              .accumulate = outputs_apart() && (tile > 0 || part > 0)});
    }
    if (is_whole && sums) runtime::cast(call.stream, d_inner, dtype_, sum, runtime::DType::f32, N * rank_);
    if (is_whole) runtime::scale(call.stream, d_inner, dtype_, factor_, N * rank_);
    d_inner += at.bytes;
    sum += N * rank_ * sizeof(float);
  }
}

void Linear::adapt_d_inputs(const LayerCall& call, std::byte* dx, const Arrays& at) const {
  const std::size_t N = rows(call);
  const std::byte* d_inner = call.deferred + at.d_inner;
  for (const Adapter& adapter : adapters_) {
    std::byte* const to = dropout_ > 0 ? call.workspace + at.dropped : dx;
    matmul(call.stream, {.m = N, .n = in_, .k = rank_},
           {.c = to,
            .c_dtype = dtype_,
            .a = d_inner,
            .b = parameter(call, adapter.a, dtype_),
            .dtype = dtype_,
            .accumulate = to == dx});
    if (to != dx) {
      drop(call, adapter, to);
      runtime::add(call.stream, dx, to, dtype_, N * in_);
    }
    d_inner += at.bytes;
  }
}

void Linear::join(const LayerCall& call, const std::byte* x, const Arrays& at, std::size_t tile) const {
  const std::size_t tile_bytes = tile_in_ * size_of(dtype_);
  runtime::copy_runs(call.stream, call.workspace + at.joined + tile * tile_bytes, in_ * size_of(dtype_), x,
                     tile_bytes, tile_bytes, rows(call));
}

void Linear::backward_adapters(const LayerCall& call, const std::byte* x, const std::byte* dy, const Arrays& at,
                               std::size_t tile_bytes) const {
  if (adapters_.empty()) return;
  const std::size_t N = rows(call), gradient_size = size_of(gradient_dtype_);
  const std::size_t shares = outputs_apart() ? tiles_.size() : 1;
  if (sums_outputs()) {
    for (std::size_t tile = 0; tile < tiles_.size(); ++tile) join(call, x + tile * tile_bytes, at, tile);
    x = call.workspace + at.joined;
  }
  std::size_t inner = 0;
  for (const Adapter& adapter : adapters_) {
    for (std::size_t share = 0; share < shares * adapter.parts; ++share) {
      const std::size_t tile = share / adapter.parts;
      const AdaptedOutputs outputs = outputs_of(adapter, tile, share % adapter.parts);
      matmul(call.stream,
             {.m = outputs.channels, .n = rank_, .k = N, .transpose_a = true, .a_stride = outputs.stride},
             {.c = gradient(call, adapter.b, gradient_dtype_) + outputs.first_row * rank_ * gradient_size,
              .c_dtype = gradient_dtype_,
              .a = dy + tile * tile_bytes + outputs.column * size_of(dtype_),
              .b = call.saved + at.inner + inner,
              .dtype = dtype_,
              .accumulate = call.accumulate});
    }
    matmul(call.stream, {.m = rank_, .n = in_, .k = N, .transpose_a = true},
           {.c = gradient(call, adapter.a, gradient_dtype_),
            .c_dtype = gradient_dtype_,
            .a = call.deferred + at.d_inner + inner,
            .b = dropped(call, adapter, x, at),
            .dtype = dtype_,
            .accumulate = call.accumulate});
    inner += at.bytes;
  }
}

}  // namespace ranvier::models
