#include "models/parts/gated_mlp.hpp"

#include "models/ops/swiglu.hpp"

namespace ranvier::models {

GatedMlp::GatedMlp(UnitBuilder& builder, std::size_t unit, const std::string& name, const GatedMlpOptions& options)
    : inner_(options.inner),
      dtype_(options.precision.compute),
      gate_up_(builder, unit,
               {.tensors = {{name + ".gate_proj", options.inner}, {name + ".up_proj", options.inner}},
                .in = options.channels,
                .initializer = options.initializer,
                .precision = options.precision}),
      down_(builder, unit,
            {.tensors = {{name + ".down_proj", options.channels}},
             .in = options.inner,
             .initializer = options.initializer,
             .precision = options.precision}) {}

GatedMlp::Arrays GatedMlp::plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                                std::size_t rows) const {
  const std::size_t element = size_of(dtype_);
  return {.gate_up = saved.add(rows * 2 * inner_, element),
          .inner = deferred.add(rows * inner_, element),
          .workspace = workspace.add(rows * inner_, element),
          .gate_up_adapters = gate_up_.plan(saved, deferred, workspace, rows),
          .down_adapters = down_.plan(saved, deferred, workspace, rows)};
}

void GatedMlp::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                       const std::byte* addend) const {
  gate_up_.forward(call, call.saved + at.gate_up, x, at.gate_up_adapters);
  swiglu_forward(call.stream, dtype_, call.workspace + at.workspace, call.saved + at.gate_up, rows(call), inner_);
  down_.forward_add(call, y, call.workspace + at.workspace, addend, at.down_adapters);
}

void GatedMlp::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy) const {
  std::byte *const inner = call.deferred + at.inner, *const gate_up = call.saved + at.gate_up;
  down_.backward_input(call, inner, dy, at.down_adapters);
  swiglu_backward(call.stream, dtype_, inner, gate_up, rows(call), inner_);
  gate_up_.backward_input(call, dx, gate_up, at.gate_up_adapters);
}

void GatedMlp::backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x,
                               const std::byte* dy) const {
  down_.backward_weight(call, call.deferred + at.inner, dy, nullptr, at.down_adapters);
  gate_up_.backward_weight(call, x, call.saved + at.gate_up, nullptr, at.gate_up_adapters);
}

}  // namespace ranvier::models
