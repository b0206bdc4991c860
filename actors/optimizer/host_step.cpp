#include "actors/optimizer/host_step.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::StreamWidth;

HostStep::Memory HostStep::plan(const UnitStates& states, std::size_t slots, runtime::MemoryPlan& plan) {
  std::size_t elements = 0;
  for (const UnitState& unit : states.all()) {
    for (std::size_t b = 0; b < unit.cut.buckets(); ++b) {
      elements = std::max(elements, unit.cut.elements(unit.optimizer, b));
    }
  }
  const auto add = [&](const char* name, runtime::DType dtype) {
    return plan.add({MemoryKind::workspace, MemorySpace::pinned, name, elements * runtime::size_of(dtype), slots});
  };
  return {.gradients = add("gradients for the step on the host", states.precision().gradient),
          .parameters = add("parameters from the step on the host", states.precision().compute),
          .slots = slots};
}

HostStep::HostStep(runtime::EventLoop& loop, runtime::Device& device, const UnitStates& states,
                   const Memory& memory, const runtime::Arena& arena)
    : loop_(&loop), states_(&states), memory_(memory), arena_(&arena) {
  if (device.kind() != runtime::DeviceKind::inline_) {
    // Beside a GPU the host has nothing else to compute: the cores that this rank is bound to.
    const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    host_ = runtime::make_cpu_device(
        {.threads = device.kind() == runtime::DeviceKind::cuda ? cores : device.threads()});
    host_->on_failure([&loop](std::exception_ptr error) { loop.stop(error); });
  }
  to_host_ = device.make_stream("gradients to the host", StreamWidth::one);
  to_device_ = device.make_stream("parameters from the host", StreamWidth::one);
  steps_ = host_ ? host_->make_stream("step", StreamWidth::whole) : device.make_stream("step", StreamWidth::one);
}

HostStep::~HostStep() {
  for (auto* stream : {to_host_.get(), steps_.get(), to_device_.get()}) {
    try {
      stream->synchronize();
    } catch (const std::exception&) {  // reported through Device::on_failure already
    }
  }
}

void HostStep::after(runtime::Stream& stream, runtime::Handler next) {
  loop_->after_work(stream, {"optimizer", "a bucket that is stepped on the host"}, std::move(next));
}

void HostStep::step(std::size_t slot, std::vector<Piece> pieces, const runtime::AdamWOptions& adamw,
                    runtime::Handler done) {
  const auto [compute, gradient] = states_->precision();
  const bool separate = states_->separate_master();
  std::byte* gradients = arena_->slot(memory_.gradients, slot);
  std::byte* parameters = arena_->slot(memory_.parameters, slot);
  const std::size_t gradient_width = runtime::size_of(gradient), width = runtime::size_of(compute);
  for (const Piece& piece : pieces) {
    const auto& [range, offset, weights, m, v] = piece.states;
    runtime::copy(*to_host_, gradients + offset * gradient_width, piece.gradient, range.count * gradient_width);
    if (!separate) runtime::copy(*to_host_, parameters + offset * width, weights, range.count * width);
  }
  const auto shared = std::make_shared<std::vector<Piece>>(std::move(pieces));
  const auto to_layers = [=, this, done = std::move(done)] { copy_to_layers(slot, *shared, done); };
  after(*to_host_, [=, this] {
    for (const Piece& piece : *shared) {
      const auto& [range, offset, weights, m, v] = piece.states;
      std::byte* here = parameters + offset * width;
      // Between parameters nothing is stepped, and what layers have there is zero.
      if (separate) runtime::fill_zero(*steps_, here, range.count * width);
      runtime::adamw(*steps_,
                     {.weights = separate ? weights : reinterpret_cast<float*>(here),
                      .m = m,
                      .v = v,
                      .gradient = gradients + offset * gradient_width,
                      .gradient_dtype = gradient,
                      .working = separate && piece.layers_copy != nullptr ? here : nullptr,
                      .working_dtype = compute},
                     piece.segments, adamw);
    }
    after(*steps_, to_layers);
  });
}

void HostStep::refresh(std::size_t slot, std::vector<Piece> pieces, runtime::Handler done) {
  const runtime::DType dtype = states_->precision().compute;
  for (const Piece& piece : pieces) {
    if (piece.layers_copy == nullptr) continue;
    std::byte* here = arena_->slot(memory_.parameters, slot) + piece.states.offset * runtime::size_of(dtype);
    runtime::cast(*steps_, here, dtype, piece.states.weights, runtime::DType::f32, piece.states.range.count);
  }
  after(*steps_, [this, slot, pieces = std::move(pieces), done = std::move(done)] {
    copy_to_layers(slot, pieces, done);
  });
}

void HostStep::copy_to_layers(std::size_t slot, const std::vector<Piece>& pieces, runtime::Handler done) {
  const std::byte* parameters = arena_->slot(memory_.parameters, slot);
  const std::size_t width = runtime::size_of(states_->precision().compute);
  for (const Piece& piece : pieces) {
    std::byte* to = states_->separate_master() ? piece.layers_copy : reinterpret_cast<std::byte*>(piece.states.weights);
    if (to == nullptr) continue;
    runtime::copy(*to_device_, to, parameters + piece.states.offset * width, piece.states.range.count * width);
  }
  after(*to_device_, std::move(done));
}

}  // namespace ranvier::actors
