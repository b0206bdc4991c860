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
  Plan plan{.tier = options.optimizer, .step = options.step};
  expect(options.step == StepLocation::device || options.optimizer != TierKind::device,
         "states on the device are stepped on the host");
  expect(!has_spare || (options.optimizer != TierKind::device && states.separate_master()),
         "spare copies of states without master weights of their own");
  if (options.optimizer == TierKind::device) return plan;
  std::size_t buckets = 0;
  for (const UnitState& unit : states.all()) {
    std::vector<std::size_t> widths(2, runtime::size_of(options.moments));
    if (states.separate_master()) widths.insert(widths.begin(), runtime::size_of(options.master));
    const ShardRecords records(unit.cut, unit.optimizer, std::move(widths));
    plan.slot_bytes = std::max(plan.slot_bytes, records.layout().slot_bytes());
    buckets += records.layout().buckets();
    const auto reserve = [&](ShardRecords& copy, const std::string& name) {
      if (unit.trained()) copy.reserve(planner, options.optimizer, MemoryKind::optimizer, unit.spec->name + name);
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

offload::BucketStages::Stage offload::BucketStages::* StateRecords::changes_in(Copy to) const {
  using Stages = offload::BucketStages;
  if (stays() && to == Copy::spare) return &Stages::fetch;  // the spare copy is updated in place
  return stays() || !states_->separate_master() ? &Stages::compute : &Stages::store;
}

const ShardRecords& StateRecords::records(const Bucket& bucket, Copy copy) const {
  return (number_of(bucket, copy) == 0 ? plan_.states : plan_.spare)[bucket.unit];
}

std::size_t StateRecords::array_of(StateKind kind) const {
  const auto* const array = std::ranges::find(optimizer_states, kind);
  expect(array != optimizer_states.end(), "records of optimizer states have no {}", to_string(kind));
  return static_cast<std::size_t>(array - optimizer_states.begin()) - (states_->separate_master() ? 0 : 1);
}

StatePlace StateRecords::place(std::size_t unit, std::size_t copy, StateKind kind, std::size_t begin) const {
  if (const std::byte* memory = states_->all()[unit].view(kind).at(begin)) return {.memory = memory};
  const ShardRecords& records = (copy == 0 ? plan_.states : plan_.spare)[unit];
  return records.place(*context_, records.run_from(begin, array_of(kind)).offset);
}

std::byte* StateRecords::record(const Bucket& bucket, std::size_t slot_index, Copy to) const {
  if (!stays()) return slot(slot_index).data();
  const ShardRecords& states = records(bucket, to);
  return states.memory(*context_, states.layout().record_offset(bucket.index));
}

void StateRecords::fetch(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays() && to == Copy::counts) return done();
  const std::size_t bytes = plan_.states[bucket.unit].layout().record_bytes(bucket.index);
  move(IoKind::read, bucket, Copy::counts, 0, {record(bucket, slot_index, to), bytes}, done);
}

void StateRecords::fetch_weights(const Bucket& bucket, std::size_t slot_index, const runtime::Handler& done) {
  if (stays()) return done();
  const std::size_t bytes = plan_.states[bucket.unit].layout().array_offset(bucket.index, 1);
  move(IoKind::read, bucket, Copy::counts, 0, slot(slot_index).first(offload::Tier::whole_blocks(bytes)), done);
}

void StateRecords::store(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays()) return done();
  const std::size_t bytes = plan_.states[bucket.unit].layout().record_bytes(bucket.index);
  move(IoKind::write, bucket, to, 0, slot(slot_index).first(bytes), done);
}

void StateRecords::commit(const Bucket& bucket) { flipped_[bucket.unit][bucket.index].flip(); }

std::vector<StateRecords::Stretch> StateRecords::stretches(const Bucket& bucket, std::size_t slot_index,
                                                           Copy to) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const std::size_t piece = unit.cut.piece_elements(), of_piece = unit.cut.slice(bucket.index).count;
  std::vector<Stretch> all;
  for (const Range& range : stepped_ranges(unit)) {
    const auto [begin, count, runs] = unit.cut.spread(range, bucket.index);
    Stretch& stretch = all.emplace_back();
    stretch.begin = begin;
    stretch.offset = (range.begin - unit.optimizer.begin) / piece * of_piece;
    stretch.count = count;
    stretch.in_unit = runs;
    stretch.layers_have = unit.parameters.range.contains(range);
    const auto find = [&](StateKind kind, std::byte*& state, runtime::StridedLayout& layout) {
      const UnitView& view = unit.view(kind);
      state = view.at(begin);
      if (state != nullptr) {
        layout = runs;
      } else {
        const std::size_t array = plan_.states[bucket.unit].layout().array_offset(bucket.index, array_of(kind));
        state = record(bucket, slot_index, to) + array + stretch.offset * runtime::size_of(view.dtype);
      }
    };
    find(StateKind::weights, stretch.weights, stretch.weight_runs);
    find(StateKind::m, stretch.m, stretch.moment_runs);
    find(StateKind::v, stretch.v, stretch.moment_runs);
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
      if (!on_device() || unit.view(kind).data != nullptr) all.push_back({u, kind, unit.optimizer});
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
  if (plan_.tier != TierKind::host) return {};
  const auto [bucket, first, count, offset] = plan_.states[array.unit].run_from(begin, array_of(array.kind));
  return floats(records({array.unit, bucket}, Copy::counts).memory(*context_, offset), count);
}

void StateRecords::access(Access access) {
  if (access.values.empty()) return context_->loop.post(std::move(access.done));
  const UnitState& unit = states_->all().at(access.unit);
  const UnitView& view = unit.view(access.array);
  const std::size_t count = access.values.size() / runtime::size_of(view.dtype);
  expect(view.range.contains({access.begin, count}), "elements {} to {} of {} are not this rank's", access.begin,
         access.begin + count, unit.spec->name);
  if (std::byte* state = view.at(access.begin)) return copy(access, state, access.values.size(), access.done);
  access_record(std::move(access));
}

void StateRecords::copy(const Access& access, std::byte* state, std::size_t bytes, runtime::Handler next) {
  if (access.kind == IoKind::write) {
    runtime::copy(context_->compute, state, access.values.data(), bytes);
  } else {
    runtime::copy(context_->compute, access.values.data(), state, bytes);
  }
  context_->loop.after_work(context_->compute,
                            {"optimizer", "a copy of the states of", states_->all()[access.unit].spec->name},
                            std::move(next));
}

void StateRecords::move(IoKind kind, const Bucket& bucket, Copy copy, std::size_t offset,
                        std::span<std::byte> memory, const runtime::Handler& done) {
  const ShardRecords& states = records(bucket, copy);
  if (plan_.step == StepLocation::device)
    return states.move_record(*context_, kind, bucket.index, offset, memory, done);
  context_->tiers.move_on_host(kind, states.region(), states.layout().record_offset(bucket.index) + offset, memory,
                               done);
}

/// Moves the elements in the record of the first one, up to the end of its finest shard; then the rest.
void StateRecords::access_record(Access access) {
  constexpr std::size_t block = offload::Tier::block_bytes;
  const ShardRecords& states = plan_.states[access.unit];
  const ShardRecords::Run run = states.run_from(access.begin, array_of(access.array));
  const Bucket bucket{access.unit, run.bucket};
  const std::size_t width = runtime::size_of(states_->all()[access.unit].view(access.array).dtype);
  const std::size_t bytes = std::min(access.values.size(), run.count * width);
  const std::size_t first = run.offset - states.layout().record_offset(run.bucket), end = first + bytes;
  Access rest = access;
  rest.begin += bytes / width;
  rest.values = rest.values.subspan(bytes);
  const auto go_on = [this, rest = std::move(rest)] {
    if (rest.values.empty()) return rest.done();
    this->access(rest);
  };
  if (stays()) return copy(access, record(bucket, 0, Copy::counts) + first, bytes, go_on);
  const std::size_t first_block = first / block * block, end_block = offload::Tier::whole_blocks(end);
  const std::span<std::byte> blocks = slot(0).first(end_block - first_block);
  const auto copy_and_go_on = [=, this] {
    std::byte* const state = blocks.data() + (first - first_block);
    if (access.kind == IoKind::read) return copy(access, state, bytes, go_on);
    copy(access, state, bytes,
         [=, this] { move(IoKind::write, bucket, Copy::counts, first_block, blocks, go_on); });
  };
  if (access.kind == IoKind::read)
    return move(IoKind::read, bucket, Copy::counts, first_block, blocks, copy_and_go_on);
  // Blocks that are written completely need no fetch.
  std::vector<std::size_t> partial;
  if (first != first_block) partial.push_back(first_block);
  if (end != end_block && (partial.empty() || end_block - block != first_block))
    partial.push_back(end_block - block);
  if (partial.empty()) return copy_and_go_on();
  const auto one_there = runtime::last_of(partial.size(), copy_and_go_on);
  for (const std::size_t at : partial) {
    move(IoKind::read, bucket, Copy::counts, at, blocks.subspan(at - first_block, block), one_there);
  }
}

}  // namespace ranvier::actors
