#include "models/parts/mlp.hpp"

namespace ranvier::models {

Mlp::Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options)
    : inner_(options.inner),
      gelu_(options.gelu),
      dtype_(options.precision.compute),
      up_(builder, unit,
          {.tensors = {{options.up, options.inner}},
           .in = options.channels,
           .bias = true,
           .initializer = options.initializer,
           .precision = options.precision}),
      down_(builder, unit,
            {.tensors = {{options.down, options.channels}},
             .in = options.inner,
             .bias = true,
             .initializer = options.initializer,
             .precision = options.precision}) {}

Mlp::Arrays Mlp::plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                      std::size_t rows) const {
  const std::size_t element = size_of(dtype_);
  return {.inner = saved.add(rows * inner_, element),
          .d_inner = deferred.add(rows * inner_, element),
          .workspace = workspace.add(rows * inner_, element)};
}

void Mlp::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                  const std::byte* addend) const {
  std::byte *const inner = call.saved + at.inner, *const active = call.workspace + at.workspace;
  up_.forward(call, inner, x);
  gelu_forward(call.stream, dtype_, active, inner, rows(call) * inner_, gelu_);
  if (addend == nullptr) return down_.forward(call, y, active);
  down_.forward_add(call, y, active, addend);
}

void Mlp::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy) const {
  std::byte* const d_inner = call.deferred + at.d_inner;
  down_.backward_input(call, d_inner, dy);
  gelu_backward(call.stream, dtype_, d_inner, call.saved + at.inner, rows(call) * inner_, gelu_);
  up_.backward_input(call, dx, d_inner);
}

void Mlp::backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const {
  down_.backward_weight(call, call.saved + at.inner, dy, nullptr);
  up_.backward_weight(call, x, call.deferred + at.d_inner, nullptr);
}

}  // namespace ranvier::models
