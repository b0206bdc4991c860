#include "actors/state_tier.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::BucketLayout;
using offload::BucketPass;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

BucketLayout layout_of(const UnitState& unit, const TierOptions& options, bool half) {
  std::vector<std::size_t> widths(half ? 3 : 2, sizeof(float));
  return {unit.optimizer.count, std::min(options.bucket_elements, unit.optimizer.count), std::move(widths)};
}

}  // namespace

StateTier::Memory StateTier::plan(const UnitStates& states, const TierOptions& options, offload::TierPlan& tiers,
                                  runtime::MemoryPlan& plan) {
  Memory memory;
  if (options.optimizer == TierKind::device) return memory;
  const bool half = states.separate_master();
  std::size_t buckets = 0;
  for (const UnitState& unit : states.all()) {
    const BucketLayout layout = layout_of(unit, options, half);
    memory.slot_bytes = std::max(memory.slot_bytes, offload::Tier::whole_blocks(layout.slot_bytes()));
    memory.regions.push_back(tiers.reserve(options.optimizer, MemoryKind::optimizer,
                                           unit.spec->name + " optimizer states", layout.region_bytes(), plan));
    buckets += layout.buckets();
  }
  memory.slots = plan.add({MemoryKind::optimizer, MemorySpace::device, "buckets of optimizer states",
                           memory.slot_bytes, std::min(options.depth, std::max<std::size_t>(buckets, 1))});
  return memory;
}

StateTier::StateTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView compute,
                     const UnitStates& states, const TierOptions& options, const Memory& memory,
                     const runtime::Arena& arena, std::function<void(std::size_t unit)> unit_stepped)
    : loop_(&loop),
      compute_(compute),
      states_(&states),
      half_(states.separate_master()),
      unit_stepped_(std::move(unit_stepped)),
      arena_(&arena),
      memory_(memory),
      tiers_(&tiers),
      gradients_(states.all().size()),
      parameters_(states.all().size()),
      buckets_missing_(states.all().size()) {
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    layouts_.push_back(layout_of(states.all()[u], options, half_));
    first_bucket_.push_back(buckets_.size());
    for (std::size_t b = 0; b < layouts_[u].buckets(); ++b) buckets_.push_back({u, b});
  }
  pipeline_ = std::make_unique<offload::BucketPipeline>(
      loop,
      offload::BucketPipelineOptions{.buckets = buckets_.size(),
                                     .depth = std::min(options.depth, std::max<std::size_t>(buckets_.size(), 1)),
                                     .counting = offload::Counting::on_answer},
      offload::BucketStages{
          .fetch = [this](const BucketPass& pass,
                          runtime::Handler done) { fetch(buckets_[pass.bucket], pass.slot, std::move(done)); },
          .compute = [this](const BucketPass& pass, runtime::Handler done) { this->compute(pass, std::move(done)); },
          .store = [this](const BucketPass& pass,
                          runtime::Handler done) { store(buckets_[pass.bucket], pass.slot, std::move(done)); },
          .refresh = [this](const BucketPass& pass, const runtime::Handler& done) { refresh(pass, done); }});
}

void StateTier::fetch(const Bucket& bucket, std::size_t slot_index, runtime::Handler done) {
  const BucketLayout& layout = layouts_[bucket.unit];
  tiers_->fetch(memory_.regions[bucket.unit], layout.record_offset(bucket.index),
                slot(slot_index).first(layout.record_bytes(bucket.index)), std::move(done));
}

void StateTier::store(const Bucket& bucket, std::size_t slot_index, runtime::Handler done) {
  const BucketLayout& layout = layouts_[bucket.unit];
  tiers_->store(memory_.regions[bucket.unit], layout.record_offset(bucket.index),
                slot(slot_index).first(layout.record_bytes(bucket.index)), std::move(done));
}

std::span<std::byte> StateTier::slot(std::size_t index) const {
  return {arena_->slot(*memory_.slots, index), memory_.slot_bytes};
}

StateTier::View StateTier::view(const Bucket& bucket, std::size_t slot_index) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const BucketLayout& layout = layouts_[bucket.unit];
  const auto array = [&](std::size_t which) {
    return reinterpret_cast<float*>(slot(slot_index).data() + layout.array_offset(bucket.index, which));
  };
  View view{.begin = layout.begin(bucket.index), .end = layout.end(bucket.index)};
  view.weights = half_ ? array(0) : reinterpret_cast<float*>(unit.parameters.at(unit.optimizer.begin + view.begin));
  view.m = array(half_ ? 1 : 0);
  view.v = array(half_ ? 2 : 1);
  return view;
}

void StateTier::load(Source weights, runtime::Handler done) {
  if (!half_) return loop_->post(std::move(done));  // moments begin at zero, as the tier does
  weights_ = std::move(weights);
  loaded_ = std::move(done);
  host_ = compute_.device().allocate(std::size_t{1} << 20, MemorySpace::pinned);
  load_next(0);
}

void StateTier::load_next(std::size_t number) {
  if (number == buckets_.size()) {
    host_ = {};
    weights_ = nullptr;
    return loop_->post(std::exchange(loaded_, nullptr));
  }
  const Bucket bucket = buckets_[number];
  const UnitState& unit = states_->all()[bucket.unit];
  const View to = view(bucket, 0);
  runtime::fill_zero(compute_, slot(0).data(), memory_.slot_bytes);
  const std::size_t first = unit.optimizer.begin + to.begin;
  const std::size_t last = std::min(unit.optimizer.begin + to.end, unit.spec->elements());
  auto* values = reinterpret_cast<float*>(host_.data());
  const std::size_t piece = host_.bytes() / sizeof(float);
  for (std::size_t begin = first; begin < last; begin += piece) {
    const std::size_t count = std::min(piece, last - begin);
    weights_(*unit.spec, begin, {values, count});
    runtime::copy(compute_, to.weights + (begin - first), values, count * sizeof(float));
    compute_.synchronize();  // before training, when nothing else happens
  }
  compute_.synchronize();
  store(bucket, 0, [this, number] { load_next(number + 1); });
}

void StateTier::begin() {
  held_.reset();
  if (running_) {
    begins_again_ = true;
  } else {
    begin_now();
  }
}

void StateTier::begin_now() {
  running_ = true;
  for (std::size_t u = 0; u < layouts_.size(); ++u) buckets_missing_[u] = layouts_[u].buckets();
  pipeline_->begin([this](bool) {
    running_ = false;
    const runtime::Handler over = std::exchange(over_, nullptr);
    if (begins_again_) {
      begins_again_ = false;
      begin_now();
    }
    over();
  });
  step_waits_ = false;
  for (runtime::Handler& call : std::exchange(once_begun_, {})) call();
}

void StateTier::step(const runtime::AdamWOptions& adamw, runtime::Handler stored) {
  if (begins_again_) {
    step_waits_ = true;
    return once_begun_.push_back([this, adamw, stored = std::move(stored)] { step(adamw, stored); });
  }
  adamw_ = adamw;
  over_ = std::move(stored);
  pipeline_->answer(true);
}

void StateTier::ready(std::size_t unit, const std::byte* gradient, std::byte* parameters) {
  // Units of the step before may still come when the next batch has begun.
  if (step_waits_) return once_begun_.push_back([=, this] { ready(unit, gradient, parameters); });
  gradients_[unit] = gradient;
  parameters_[unit] = parameters;
  for (std::size_t b = 0; b < layouts_[unit].buckets(); ++b) pipeline_->ready(first_bucket_[unit] + b);
}

void StateTier::skip(runtime::Handler done) {
  if (begins_again_) return once_begun_.push_back([this, done = std::move(done)] { skip(done); });
  over_ = std::move(done);
  for (std::size_t b = 0; b < buckets_.size(); ++b) pipeline_->ready(b);
  pipeline_->answer(false);
}

void StateTier::compute(const BucketPass& pass, runtime::Handler done) {
  const Bucket bucket = buckets_[pass.bucket];
  const UnitState& unit = states_->all()[bucket.unit];
  const models::Precision& precision = states_->precision();
  const View at = view(bucket, pass.slot);
  std::vector<runtime::DecaySegment> segments;
  for (runtime::DecaySegment segment : unit.segments) {
    segment.begin = std::max(segment.begin, at.begin);
    segment.end = std::min(segment.end, at.end);
    if (segment.begin >= segment.end) continue;
    segments.push_back({segment.begin - at.begin, segment.end - at.begin, segment.decays});
  }
  const std::size_t first = unit.optimizer.begin + at.begin, last = unit.optimizer.begin + at.end;
  UnitPart to_layers = unit.parameters;
  to_layers.data = parameters_[bucket.unit];
  const collectives::Range& held = to_layers.range;
  const bool holds_all = held.begin <= first && last <= held.begin + held.count;
  runtime::adamw(compute_,
                 {.weights = at.weights,
                  .m = at.m,
                  .v = at.v,
                  .gradient = gradients_[bucket.unit] + at.begin * runtime::size_of(precision.gradient),
                  .gradient_dtype = precision.gradient,
                  .working = half_ && holds_all ? to_layers.at(first) : nullptr,
                  .working_dtype = precision.compute},
                 std::move(segments), adamw_);
  const std::size_t from = std::max(first, held.begin), to = std::min(last, held.begin + held.count);
  if (half_ && !holds_all && from < to) {
    runtime::cast(compute_, to_layers.at(from), precision.compute, at.weights + (from - first),
                  runtime::DType::f32, to - from);
  }
  compute_.call_back([this, done = std::move(done)] { loop_->post(done); });
}

/// The step wrote the parameters that layers read; here is only told of them.
void StateTier::refresh(const BucketPass& pass, const runtime::Handler& done) {
  const std::size_t unit = buckets_[pass.bucket].unit;
  if (--buckets_missing_[unit] == 0) unit_stepped_(unit);
  done();
}

void StateTier::read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  expect(!running_, "weights are read while a step changes them");
  if (out.empty()) return loop_->post(std::move(done));
  const UnitState& state = states_->all()[unit];
  const BucketLayout& layout = layouts_[unit];
  const std::size_t in_range = begin - state.optimizer.begin;
  std::size_t index = 0;
  while (layout.end(index) <= in_range) ++index;
  const std::size_t number = first_bucket_[unit] + index;
  const std::size_t count = std::min(out.size(), layout.end(index) - in_range);
  const auto copy_out = [this, number, in_range, count, unit, begin, out, done = std::move(done)] {
    held_ = number;
    const View from = view(buckets_[number], 0);
    runtime::copy(compute_, out.data(), from.weights + (in_range - from.begin), count * sizeof(float));
    compute_.call_back([this, unit, begin, out, count, done] {
      loop_->post([this, unit, begin, out, count, done] {
        if (count == out.size()) return done();
        read(unit, begin + count, out.subspan(count), done);
      });
    });
  };
  if (!half_ || held_ == number) return copy_out();
  fetch(buckets_[number], 0, copy_out);
}

}  // namespace ranvier::actors
