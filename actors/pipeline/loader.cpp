#include "actors/pipeline/loader.hpp"

#include "actors/states/model_share.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {
namespace {

/// Cost of copying samples of this size.
runtime::WorkCost samples_cost(std::size_t bytes) {
  return memory_cost(runtime::WorkKind::samples, runtime::DType::i32, bytes);
}

}  // namespace

Loader::Plan Loader::plan(PlanContext& planner, const models::SampleBytes& sample) {
  const models::StageSlices& stage = *planner.share.stage;
  const auto slots_of = [&](std::size_t slice) {
    return static_cast<std::size_t>(stage.slice(slice).sample_slots());
  };
  std::size_t all_slots = 0;
  for (std::size_t s = 0; s < stage.size(); ++s) all_slots += slots_of(s);
  Plan plan;
  const auto add = [&](const char* name, std::size_t sample_bytes, std::size_t count) -> Plan::Buffers {
    const std::size_t bytes = sample_bytes * static_cast<std::size_t>(stage.capacity().samples);
    if (bytes == 0) return {};  // no data of this kind
    planner.memory.add({.kind = runtime::MemoryKind::messages,
                        .space = runtime::MemorySpace::pinned,
                        .name = name,
                        .slot_bytes = runtime::PinnedPool::buffer_bytes(bytes),
                        .slots = count,
                        .elsewhere = true});
    return {bytes, count};
  };
  if (stage.first()) plan.inputs = add("inputs, staged", sample.input, slots_of(0));
  if (stage.last()) plan.targets = add("targets, staged", sample.target, slots_of(stage.size() - 1));
  plan.documents = add("documents, staged", sample.documents, all_slots);
  return plan;
}

Loader::Places::Places(runtime::Device& device, const Plan& plan)
    : inputs(device, "inputs of samples"),
      targets(device, "targets of samples"),
      documents(device, "documents of samples") {
  inputs.reserve(plan.inputs.bytes, plan.inputs.count);
  targets.reserve(plan.targets.bytes, plan.targets.count);
  documents.reserve(plan.documents.bytes, plan.documents.count);
}

void Loader::load(Data data, std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  using models::SampleSource;
  struct Kind {
    void (SampleSource::*read)(std::int64_t, int, std::byte*) const;
    runtime::PinnedPool& places;  // memory for the transfer to a GPU
    std::size_t sample_bytes;
  };
  const auto [input, target, documents] = source_->sample_bytes();
  const Kind kind = data == Data::inputs    ? Kind{&SampleSource::read_inputs, places_->inputs, input}
                    : data == Data::targets ? Kind{&SampleSource::read_targets, places_->targets, target}
                                            : Kind{&SampleSource::read_documents, places_->documents, documents};
  const std::size_t bytes = static_cast<std::size_t>(count) * kind.sample_bytes;
  runtime::StreamView reader = context_->load;
  std::byte* read_to = to;
  if (!context_->load.device().host_reaches(to)) {
    if (!reader_) reader_ = context_->host.make_stream("reader", runtime::StreamWidth::one);
    reader = *reader_;
    // The buffer is returned before `done` runs, even if a copy of the handler still exists.
    const auto place = std::make_shared<std::shared_ptr<std::byte>>(kind.places.take(bytes));
    read_to = place->get();
    done = [this, place, first, bytes, to, done = std::move(done)] {
      runtime::copy(context_->load, to, place->get(), bytes);
      const runtime::WorkName copy{name(), "the copy to the device of the samples from", {}, first};
      context_->loop.after_work(context_->load, copy, [place, done] {
        place->reset();
        done();
      });
    };
  }
  reader.launch(samples_cost(bytes), [source = source_, read = kind.read, first, count,
                                      read_to](runtime::ComputePool&) { (source->*read)(first, count, read_to); });
  context_->loop.after_work(reader, {name(), "the samples from", {}, first}, std::move(done));
  if (data == Data::documents || stride_ == 0) return;
  reader.launch(samples_cost(0), [source = source_, next = first + stride_, count](runtime::ComputePool&) {
    for (std::int64_t n = next; n < next + count; ++n) source->prefetch(n);
  });
}

}  // namespace ranvier::actors
