#include "actors/optimizer/state_records.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using runtime::MemoryKind;
using runtime::MemorySpace;

StateRecords::Plan StateRecords::plan(PlanContext& planner, bool has_spare) {
  const TierOptions& options = planner.tiers;
  const UnitStates& states = *planner.share.states;
  const bool has_own = states.separate_master() || options.arrays_of(true) > 1;
  Plan plan;
  expect(options.step == StepLocation::device || options.optimizer != TierKind::device,
         "states on the device are stepped on the host");
  expect(!has_spare || (options.optimizer != TierKind::device && states.separate_master()),
         "spare copies of states without master weights of their own");
  if (!has_own || options.optimizer == TierKind::device) return plan;
  std::size_t buckets = 0;
  for (const UnitState& unit : states.all()) {
    std::vector<runtime::DType> dtypes;
    for (const StateKind kind : std::span(optimizer_states).first(options.arrays_of(true)))
      if (kind != StateKind::weights || states.separate_master()) dtypes.push_back(unit.view(kind).dtype);
    const Range offloaded = unit.optimizer_on_device() ? Range{} : unit.optimizer;
    const ShardRecords records(unit.cut, offloaded, std::move(dtypes));
    plan.slot_bytes = std::max(plan.slot_bytes, records.slot_bytes());
    buckets += records.buckets();
    const auto reserve = [&](ShardRecords& copy, const std::string& name) {
      if (unit.trained() && !unit.optimizer_on_device())
        copy.reserve(planner, options.optimizer, MemoryKind::optimizer, unit.spec->name + name);
    };
    reserve(plan.states.emplace_back(records), " optimizer states");
    if (has_spare) reserve(plan.spare.emplace_back(records), " optimizer states, spare");
  }
  const bool on_host = options.step == StepLocation::host;
  if (on_host && options.optimizer == TierKind::host) return plan;
  plan.slots = planner.memory.add({MemoryKind::optimizer, on_host ? MemorySpace::pinned : MemorySpace::device,
                                   "buckets of optimizer states", plan.slot_bytes,
                                   std::min(options.depth, std::max<std::size_t>(buckets, 1))});
  return plan;
}

StateRecords::StateRecords(const RankContext& context, const ModelShare& share, const Plan& plan)
    : context_(&context), states_(share.states.get()), plan_(plan) {
  for (const UnitState& unit : states_->all()) flipped_.emplace_back(unit.cut.buckets());
}

std::span<std::byte> StateRecords::slot(std::size_t index) const {
  return {context_->arena.slot(*plan_.slots, index), plan_.slot_bytes};
}

std::size_t StateRecords::number_of(const Bucket& bucket, Copy copy) const {
  return flipped_[bucket.unit][bucket.index] == (copy == Copy::spare) ? 0 : 1;
}

offload::BucketStages::Stage offload::BucketStages::* StateRecords::changes_in(const Bucket& bucket,
                                                                               Copy to) const {
  using Stages = offload::BucketStages;
  if (stays(bucket) && to == Copy::spare) return &Stages::fetch;  // the spare copy is updated in place
  return stays(bucket) || !states_->separate_master() ? &Stages::compute : &Stages::store;
}

const ShardRecords& StateRecords::records(const Bucket& bucket, Copy copy) const {
  return (number_of(bucket, copy) == 0 ? plan_.states : plan_.spare)[bucket.unit];
}

std::size_t StateRecords::array_of(StateKind kind) const {
  const auto* const array = std::ranges::find(optimizer_states, kind);
  expect(array != optimizer_states.end(), "records of optimizer states have no {}", to_string(kind));
  return static_cast<std::size_t>(array - optimizer_states.begin()) - (states_->separate_master() ? 0 : 1);
}

StateLocation StateRecords::place(std::size_t unit, std::size_t copy, StateKind kind, std::size_t begin) const {
  if (const std::byte* memory = states_->all()[unit].view(kind).at(begin)) return {.memory = memory};
  const ShardRecords& records = (copy == 0 ? plan_.states : plan_.spare)[unit];
  return records.place(*context_, records.run_from(begin, array_of(kind)).offset);
}

std::byte* StateRecords::record(const Bucket& bucket, std::size_t slot_index, Copy to) const {
  if (!stays(bucket)) return slot(slot_index).data();
  const ShardRecords& states = records(bucket, to);
  return states.memory(*context_, states.record_offset(bucket.index));
}

void StateRecords::fetch(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (on_device(bucket) || (stays(bucket) && to == Copy::counts)) return done();
  const std::size_t bytes = plan_.states[bucket.unit].record_bytes(bucket.index);
  move(IoKind::read, bucket, Copy::counts, {record(bucket, slot_index, to), bytes}, done);
}

/// The last block may contain the start of the next array.
void StateRecords::move_weights(IoKind kind, const Bucket& bucket, std::size_t slot_index,
                                const runtime::Handler& done) {
  if (stays(bucket) || !states_->separate_master()) return done();
  const std::size_t bytes = plan_.states[bucket.unit].array_offset(bucket.index, 1);
  move(kind, bucket, Copy::counts, slot(slot_index).first(offload::Tier::whole_blocks(bytes)), done);
}

void StateRecords::store(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays(bucket)) return done();
  const std::size_t bytes = plan_.states[bucket.unit].record_bytes(bucket.index);
  move(IoKind::write, bucket, to, slot(slot_index).first(bytes), done);
}

void StateRecords::commit(const Bucket& bucket) { flipped_[bucket.unit][bucket.index].flip(); }

std::vector<StateRecords::Stretch> StateRecords::stretches(const Bucket& bucket, std::size_t slot_index,
                                                           Copy to) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const std::size_t piece = unit.cut.piece_elements(), of_piece = unit.cut.slice(bucket.index).count;
  std::vector<Stretch> all;
  for (const Range& range : stepped_ranges(unit)) {
    const auto [begin, count, runs] = unit.cut.spread(range, bucket.index);
    Stretch& stretch = all.emplace_back(Stretch{.begin = begin,
                                                .offset = (range.begin - unit.optimizer.begin) / piece * of_piece,
                                                .layers_have = unit.parameters.range.contains(range),
                                                .arrays = {.weights_dtype = unit.master.dtype,
                                                           .m_dtype = unit.m.dtype,
                                                           .v_dtype = unit.v.dtype,
                                                           .runs = {.elements = count, .positions = runs}}});
    const auto find = [&](StateKind kind, void*& state, runtime::StridedLayout& layout) {
      const UnitView& view = unit.view(kind);
      if (view.range.count == 0) return;  // the optimizer lacks this moment
      state = view.at(begin);
      if (state != nullptr) {
        layout = runs;
      } else {
        const std::size_t array = plan_.states[bucket.unit].array_offset(bucket.index, array_of(kind));
        state = record(bucket, slot_index, to) + array + runtime::bytes_of(view.dtype, stretch.offset);
      }
    };
    find(StateKind::weights, stretch.arrays.weights, stretch.arrays.runs.weights);
    find(StateKind::m, stretch.arrays.m, stretch.arrays.runs.moments);
    find(StateKind::v, stretch.arrays.v, stretch.arrays.runs.moments);
  }
  return all;
}

std::vector<StateArray> StateRecords::arrays() const {
  std::vector<StateArray> all;
  for (std::size_t u = 0; u < states_->all().size(); ++u) {
    const UnitState& unit = states_->all()[u];
    if (!unit.trained()) continue;
    // If nothing is trained, states on the device do not exist.
    for (const StateKind kind : optimizer_states) {
      const UnitView& view = unit.view(kind);
      if (view.range.count > 0 && (!unit.optimizer_on_device() || view.data != nullptr))
        all.push_back({u, kind, unit.optimizer});
    }
  }
  return all;
}

std::span<float> StateRecords::memory(const StateArray& array, std::size_t begin) const {
  const UnitState& unit = states_->all().at(array.unit);
  expect(unit.optimizer.contains({begin, 1}), "element {} of {} is not this rank's", begin, unit.spec->name);
  const UnitView& view = unit.view(array.kind);
  if (view.dtype != runtime::DType::f32) return {};
  const auto floats = [this](std::byte* from, std::size_t count) {
    return context_->device.host_reaches(from) ? std::span(reinterpret_cast<float*>(from), count)
                                               : std::span<float>();
  };
  if (std::byte* whole = view.at(begin)) return floats(whole, unit.optimizer.begin + unit.optimizer.count - begin);
  if (plan_.states[array.unit].in_files()) return {};
  const auto [bucket, first, count, offset] = plan_.states[array.unit].run_from(begin, array_of(array.kind));
  return floats(records({array.unit, bucket}, Copy::counts).memory(*context_, offset), count);
}

void StateRecords::access(Access access) {
  if (access.values.empty()) return context_->loop.post(std::move(access.done));
  const UnitState& unit = states_->all().at(access.unit);
  const UnitView& view = unit.view(access.array);
  const std::size_t count = runtime::elements_in(access.values.size(), view.dtype);
  expect(view.range.contains({access.begin, count}), "elements {} to {} of {} are not this rank's", access.begin,
         access.begin + count, unit.spec->name);
  const runtime::WorkName work{"optimizer", "a copy of the states of", unit.spec->name};
  if (std::byte* state = view.at(access.begin)) {
    const bool writes = access.kind == IoKind::write;
    runtime::copy(context_->compute, writes ? state : access.values.data(), writes ? access.values.data() : state,
                  access.values.size());
    return context_->loop.after_work(context_->compute, work, std::move(access.done));
  }
  const ShardRecords::Run run = plan_.states[access.unit].run_from(access.begin, array_of(access.array));
  const std::size_t bytes = std::min(access.values.size(), runtime::bytes_of(view.dtype, run.count));
  Access rest = access;
  rest.begin += runtime::elements_in(bytes, view.dtype);
  rest.values = rest.values.subspan(bytes);
  const auto staging = plan_.slots ? slot(0) : std::span<std::byte>();
  records({access.unit, run.bucket}, Copy::counts)
      .access(*context_, access.kind, run.offset, access.values.first(bytes), staging, work,
              [this, rest = std::move(rest)] { rest.values.empty() ? rest.done() : this->access(rest); });
}

void StateRecords::move(IoKind kind, const Bucket& bucket, Copy copy, std::span<std::byte> memory,
                        const runtime::Handler& done) {
  records(bucket, copy).move_record(*context_, kind, bucket.index, 0, memory, done);
}

}  // namespace ranvier::actors
