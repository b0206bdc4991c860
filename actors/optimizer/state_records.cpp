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
    const ShardRecords records(unit.cut, offloaded, std::move(dtypes), unit.v.stored);
    plan.slot_bytes = std::max(plan.slot_bytes, records.slot_bytes());
    buckets += records.buckets();
    const std::string name = unit.spec->name + " optimizer states";
    plan.states.emplace_back(records).reserve(planner, options.optimizer, MemoryKind::optimizer, name);
    if (!has_spare) continue;
    plan.spare.emplace_back(records).reserve(planner, options.optimizer, MemoryKind::optimizer, name + ", spare");
  }
  const bool on_host = options.step == StepLocation::host;
  if (on_host && options.optimizer == TierKind::host) return plan;
  plan.slots = planner.memory.add({MemoryKind::optimizer, on_host ? MemorySpace::pinned : MemorySpace::device,
                                   "buckets of optimizer states", plan.slot_bytes,
                                   std::min(options.depth, std::max<std::size_t>(buckets, 1))});
  return plan;
}

StateRecords::StateRecords(const RankContext& context, const ModelShare& share, const Plan& plan,
                           const OffloadedParameters* parameters)
    : context_(&context), states_(share.states.get()), plan_(plan), parameters_(parameters) {
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

StateRecords::Elements StateRecords::find(std::size_t unit, StateKind kind, std::size_t begin,
                                          std::optional<std::size_t> copy) const {
  if (std::byte* const memory = states_->all().at(unit).view(kind).at(begin)) return {.on_device = memory};
  if (kind == StateKind::parameters) {
    const ShardRecords& records = parameters_->records({unit});
    return {.records = &records, .run = records.run_from(begin)};
  }
  const ShardRecords::Run run = plan_.states[unit].run_from(begin, array_of(kind));
  const std::size_t number = copy.value_or(number_of({unit, run.bucket}, Copy::counts));
  return {.records = &(number == 0 ? plan_.states : plan_.spare)[unit], .run = run};
}

std::size_t StateRecords::array_of(StateKind kind) const {
  const auto* const array = std::ranges::find(optimizer_states, kind);
  expect(array != optimizer_states.end(), "records of optimizer states have no {}", to_string(kind));
  return static_cast<std::size_t>(array - optimizer_states.begin()) - (states_->separate_master() ? 0 : 1);
}

StateLocation StateRecords::place(std::size_t unit, std::size_t copy, StateKind kind, std::size_t begin) const {
  const auto [on_device, records, run] = find(unit, kind, begin, copy);
  return records == nullptr ? StateLocation{.memory = on_device} : records->place(*context_, run.offset);
}

std::byte* StateRecords::record(const Bucket& bucket, std::size_t slot_index, Copy to) const {
  if (!stays(bucket)) return slot(slot_index).data();
  const ShardRecords& states = records(bucket, to);
  return states.memory(*context_, states.record_offset(bucket.index));
}

std::byte* StateRecords::operand(const Bucket& bucket, std::size_t slot_index, Copy to, StateKind kind,
                                 std::size_t begin) const {
  const UnitView& view = states_->all()[bucket.unit].view(kind);
  if (view.range.count == 0 || view.data != nullptr) return view.at(begin);
  const ShardRecords& states = plan_.states[bucket.unit];
  const std::size_t in_region = states.run_from(begin, array_of(kind)).offset;
  return record(bucket, slot_index, to) + in_region - states.record_offset(bucket.index);
}

void StateRecords::fetch(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (on_device(bucket) || (stays(bucket) && to == Copy::counts)) return done();
  const ShardRecords& states = records(bucket, Copy::counts);
  states.move_record(*context_, IoKind::read, bucket.index, 0,
                     {record(bucket, slot_index, to), states.record_bytes(bucket.index)}, done);
}

/// The last block may contain the start of the next array.
void StateRecords::move_weights(IoKind kind, const Bucket& bucket, std::size_t slot_index,
                                const runtime::Handler& done) {
  if (stays(bucket) || !states_->separate_master()) return done();
  const ShardRecords& states = records(bucket, Copy::counts);
  const std::size_t bytes = offload::Tier::whole_blocks(states.array_offset(bucket.index, 1));
  states.move_record(*context_, kind, bucket.index, 0, slot(slot_index).first(bytes), done);
}

void StateRecords::store(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays(bucket)) return done();
  const ShardRecords& states = records(bucket, to);
  states.move_record(*context_, IoKind::write, bucket.index, 0,
                     slot(slot_index).first(states.record_bytes(bucket.index)), done);
}

void StateRecords::commit(const Bucket& bucket) { flipped_[bucket.unit][bucket.index].flip(); }

std::vector<StateArray> StateRecords::arrays() const {
  std::vector<StateArray> all;
  for (std::size_t u = 0; u < states_->all().size(); ++u) {
    const UnitState& unit = states_->all()[u];
    if (!unit.trained()) continue;
    // If nothing is trained, states on the device do not exist.
    for (const StateKind kind : optimizer_states) {
      const UnitView& view = unit.view(kind);
      if (unit.optimizer_on_device() && view.data == nullptr) continue;
      for (const Range& range : view.stored.in(view.range.count > 0 ? unit.optimizer : Range{}))
        all.push_back({u, kind, range});
    }
  }
  return all;
}

std::span<float> StateRecords::memory(const StateArray& array, std::size_t begin) const {
  const UnitState& unit = states_->all().at(array.unit);
  expect(array.range.contains({begin, 1}), "element {} of {} is not this rank's", begin, unit.spec->name);
  if (unit.view(array.kind).dtype != runtime::DType::f32) return {};
  const auto [on_device, records, run] = find(array.unit, array.kind, begin);
  if (records != nullptr && records->in_files()) return {};
  std::byte* const from = records == nullptr ? on_device : records->memory(*context_, run.offset);
  if (!context_->device.host_reaches(from)) return {};
  return {reinterpret_cast<float*>(from),
          records == nullptr ? array.range.begin + array.range.count - begin : run.count};
}

void StateRecords::access(Access access) {
  if (access.values.empty()) return context_->loop.post(std::move(access.done));
  const UnitState& unit = states_->all().at(access.unit);
  const UnitView& view = unit.view(access.array);
  const std::size_t count = runtime::elements_in(access.values.size(), view.dtype);
  expect(view.contains({access.begin, count}), "elements {} to {} of {} are not this rank's", access.begin,
         access.begin + count, unit.spec->name);
  const runtime::WorkName work{"optimizer", "a copy of the states of", unit.spec->name};
  const auto [on_device, records, run] = find(access.unit, access.array, access.begin);
  if (records == nullptr)
    return ShardRecords::copy(*context_, access.kind, on_device, access.values, work, std::move(access.done));
  const bool of_parameters = access.array == StateKind::parameters;
  expect(!of_parameters || access.kind == IoKind::read, "offloaded parameters are written");
  const std::size_t bytes = std::min(access.values.size(), runtime::bytes_of(view.dtype, run.count));
  Access rest = access;
  rest.begin += runtime::elements_in(bytes, view.dtype);
  rest.values = rest.values.subspan(bytes);
  const auto staging = plan_.slots && !of_parameters ? slot(0) : access.staging;
  records->access(*context_, access.kind, run.offset, access.values.first(bytes), staging, work,
                  [this, rest = std::move(rest)] { rest.values.empty() ? rest.done() : this->access(rest); });
}

}  // namespace ranvier::actors
