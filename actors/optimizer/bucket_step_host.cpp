// Updates of BucketStep on the host.
#include "actors/optimizer/bucket_step.hpp"

#include "runtime/host/cores.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

using runtime::StreamWidth;

void BucketStep::prepare_host() {
  runtime::Device& device = context_->device;
  // With a GPU, host threads have no other work, so all cores are used.
  host_ = device.make_host_device(device.apart() ? runtime::available_cores() : device.threads());
  if (host_) host_->on_failure([loop = &context_->loop](std::exception_ptr error) { loop->stop(error); });
  to_host_ = device.make_stream("gradients to the host", StreamWidth::one);
  to_device_ = device.make_stream("parameters from the host", StreamWidth::one);
  steps_ = host_ ? host_->make_stream("step", StreamWidth::whole) : device.make_stream("step", StreamWidth::one);
}

BucketStep::~BucketStep() {
  if (on_host()) finish_streams({to_host_.get(), steps_.get(), to_device_.get()});
}

void BucketStep::after(runtime::Stream& stream, runtime::Handler next) {
  context_->loop.after_work(stream, {"optimizer", "a bucket that is stepped on the host"}, std::move(next));
}

void BucketStep::step_on_host(std::size_t slot, const UnitState& unit, std::vector<Stretch> stretches,
                              const runtime::AdamWOptions& adamw, runtime::Handler done) {
  const auto [compute, gradient] = states_->precision();
  const bool separate = states_->separate_master();
  std::byte* parameters = context_->arena.slot(plan_->parameters, slot);
  const std::size_t gradient_width = runtime::size_of(gradient), width = runtime::size_of(compute);
  for (Stretch& stretch : stretches) {
    const StateRecords::Stretch& states = stretch.states;
    if (!stretch.gradient_on_host) {
      std::byte* const to = context_->arena.slot(plan_->gradients, slot) + states.offset * gradient_width;
      runtime::copy(*to_host_, to, {}, stretch.gradient, stretch.gradient_runs, gradient_width, states.count);
      stretch.gradient = to;
      stretch.gradient_runs = {};
    }
    if (separate) continue;
    runtime::copy(*to_host_, parameters + states.offset * width, {}, states.weights, states.weight_runs, width,
                  states.count);
  }
  const auto shared = std::make_shared<std::vector<Stretch>>(std::move(stretches));
  const auto to_layers = [=, this, done = std::move(done)] { copy_to_layers(slot, *shared, done); };
  after(*to_host_, [=, this, &unit] {
    context_->trace.begin(*steps_, runtime::SpanKind::optimizer);
    for (Stretch stretch : *shared) {
      std::byte* here = parameters + stretch.states.offset * width;
      if (separate) {
        // Gaps between parameters are not updated, and must be zero in the layers' copies.
        runtime::fill_zero(*steps_, here, stretch.states.count * width);
        if (stretch.layers_copy != nullptr) stretch.layers_copy = here;
        stretch.layers_runs = {};
      } else {
        stretch.states.weights = here;
        stretch.states.weight_runs = {};
      }
      step_stretch(*steps_, unit, stretch, adamw);
    }
    context_->trace.end(*steps_, runtime::SpanKind::optimizer, runtime::Trace::Lane::compute);
    after(*steps_, to_layers);
  });
}

void BucketStep::round_on_host(std::size_t slot, const UnitState& unit, std::vector<Stretch> stretches,
                               runtime::Handler done) {
  const runtime::DType dtype = states_->precision().compute;
  for (const Stretch& stretch : stretches) {
    if (stretch.layers_copy == nullptr) continue;
    const StateRecords::Stretch& states = stretch.states;
    runtime::cast(*steps_, context_->arena.slot(plan_->parameters, slot) + states.offset * runtime::size_of(dtype),
                  dtype, states.weights, unit.master.dtype, states.count, {}, states.weight_runs);
  }
  after(*steps_, [this, slot, stretches = std::move(stretches), done = std::move(done)] {
    copy_to_layers(slot, stretches, done);
  });
}

void BucketStep::copy_to_layers(std::size_t slot, const std::vector<Stretch>& stretches, runtime::Handler done) {
  const std::byte* parameters = context_->arena.slot(plan_->parameters, slot);
  const std::size_t width = runtime::size_of(states_->precision().compute);
  const bool separate = states_->separate_master();
  for (const Stretch& stretch : stretches) {
    const StateRecords::Stretch& states = stretch.states;
    std::byte* to = separate ? stretch.layers_copy : states.weights;
    if (to == nullptr) continue;
    runtime::copy(*to_device_, to, separate ? stretch.layers_runs : states.weight_runs,
                  parameters + states.offset * width, {}, width, states.count);
  }
  after(*to_device_, std::move(done));
}

}  // namespace ranvier::actors
