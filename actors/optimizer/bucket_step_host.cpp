// Updates of BucketStep on the host.
#include "actors/optimizer/bucket_step.hpp"

#include "runtime/host/cores.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

using runtime::StreamWidth;

BucketStep::BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan,
                       const StateRecords& states)
    : context_(&context), states_(share.states.get()), records_(&states), plan_(plan) {
  if (!on_host()) return;
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

void BucketStep::step_on_host(const Operands& operands, std::vector<Stretch> stretches,
                              const runtime::UpdateOptions& adamw, runtime::Handler done) {
  const auto [compute, gradient] = states_->precision();
  const bool separate = states_->separate_master(), updates = !operands.only_rounds;
  std::byte* parameters = context_->arena.slot(plan_->parameters, operands.slot);
  const std::size_t gradient_width = runtime::size_of(gradient), width = runtime::size_of(compute);
  for (Stretch& stretch : stretches) {
    runtime::UpdateArrays& arrays = stretch.arrays;
    runtime::UpdateRuns& runs = arrays.runs;
    if (updates && !operands.gradients_on_host) {
      std::byte* const to = context_->arena.slot(plan_->gradients, operands.slot) + stretch.offset * gradient_width;
      runtime::copy(*to_host_, to, {}, arrays.gradient, runs.gradient, gradient_width, runs.elements);
      arrays.gradient = to;
      runs.gradient = {};
    }
    if (separate) continue;
    runtime::copy(*to_host_, parameters + stretch.offset * width, {}, arrays.weights, runs.weights, width,
                  runs.elements);
  }
  const auto shared = std::make_shared<std::vector<Stretch>>(std::move(stretches));
  const auto to_layers = [=, this, done = std::move(done)] {
    for (const Stretch& stretch : *shared) {
      void* to = separate ? stretch.arrays.working : stretch.arrays.weights;
      if (to == nullptr) continue;
      runtime::copy(*to_device_, to, separate ? stretch.arrays.runs.working : stretch.arrays.runs.weights,
                    parameters + stretch.offset * width, {}, width, stretch.arrays.runs.elements);
    }
    after(*to_device_, done);
  };
  const auto step = [=, this] {
    if (updates) context_->trace.begin(*steps_, runtime::SpanKind::optimizer);
    for (Stretch stretch : *shared) {
      std::byte* here = parameters + stretch.offset * width;
      if (separate) {
        // Gaps between parameters are not updated, and must be zero in the layers' copies.
        if (updates) runtime::fill_zero(*steps_, here, stretch.arrays.runs.elements * width);
        if (stretch.arrays.working != nullptr) stretch.arrays.working = here;
        stretch.arrays.runs.working = {};
      } else {
        stretch.arrays.weights = here;
        stretch.arrays.runs.weights = {};
      }
      step_stretch(*steps_, operands, stretch, adamw);
    }
    if (updates) context_->trace.end(*steps_, runtime::SpanKind::optimizer, runtime::Trace::Lane::compute);
    after(*steps_, to_layers);
  };
  updates ? after(*to_host_, step) : step();
}

}  // namespace ranvier::actors
