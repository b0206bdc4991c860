#include "actors/optimizer/state_tier.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::BucketLayout;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr std::size_t values_elements = std::size_t{1} << 18;  // asked for at a time, of a source

BucketLayout layout_of(const UnitState& unit, bool separate_master) {
  return unit.cut.layout(unit.optimizer, std::vector<std::size_t>(separate_master ? 3 : 2, sizeof(float)));
}

}  // namespace

StateTier::Memory StateTier::plan(const UnitStates& states, const TierOptions& options, offload::TierPlan& tiers,
                                  runtime::MemoryPlan& plan) {
  Memory memory;
  if (options.optimizer == TierKind::device) return memory;
  std::size_t buckets = 0;
  for (const UnitState& unit : states.all()) {
    const BucketLayout layout = layout_of(unit, states.separate_master());
    memory.slot_bytes = std::max(memory.slot_bytes, offload::Tier::whole_blocks(layout.slot_bytes()));
    const auto reserve = [&](const std::string& name) {
      return tiers.reserve(options.optimizer, MemoryKind::optimizer, unit.spec->name + name, layout.region_bytes(), plan);
    };
    memory.regions.push_back(reserve(" optimizer states"));
    if (options.commit == Commit::flip) memory.spare.push_back(reserve(" optimizer states, spare"));
    buckets += layout.buckets();
  }
  if (states.separate_master()) {
    memory.values = plan.add({MemoryKind::workspace, MemorySpace::pinned, "master weights on their way to the tier",
                              values_elements * sizeof(float), 1});
  }
  const bool on_host = options.step == StepPlace::host;
  if (on_host && options.optimizer == TierKind::host) return memory;
  memory.slots = plan.add({MemoryKind::optimizer, on_host ? MemorySpace::pinned : MemorySpace::device,
                           "buckets of optimizer states", memory.slot_bytes,
                           std::min(options.depth, std::max<std::size_t>(buckets, 1))});
  return memory;
}

StateTier::StateTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView compute,
                     const UnitStates& states, const TierOptions& options, const Memory& memory,
                     const runtime::Arena& arena)
    : loop_(&loop),
      tiers_(&tiers),
      compute_(compute),
      states_(&states),
      options_(options),
      memory_(memory),
      arena_(&arena) {
  expect(options.step == StepPlace::device || !on_device(), "states on the device are stepped on the host");
  expect(options.commit == Commit::wait || (!on_device() && states.separate_master()),
         "spare copies of states without master weights of their own");
  for (const UnitState& unit : states.all()) {
    layouts_.push_back(layout_of(unit, states.separate_master()));
    flipped_.emplace_back(unit.cut.buckets());
  }
}

std::span<std::byte> StateTier::slot(std::size_t index) const {
  return {arena_->slot(*memory_.slots, index), memory_.slot_bytes};
}

offload::TierRegion StateTier::region(const Bucket& bucket, Copy copy) const {
  const bool first = flipped_[bucket.unit][bucket.index] == (copy == Copy::spare);
  return first ? memory_.regions[bucket.unit] : memory_.spare[bucket.unit];
}

std::byte* StateTier::record(const Bucket& bucket, std::size_t slot_index, Copy to) const {
  if (!stays()) return slot(slot_index).data();
  return tiers_->memory(region(bucket, to)).data() + layouts_[bucket.unit].record_offset(bucket.index);
}

void StateTier::fetch(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays() && to == Copy::counts) return done();
  bring(bucket, {record(bucket, slot_index, to), layouts_[bucket.unit].record_bytes(bucket.index)}, done);
}

void StateTier::fetch_weights(const Bucket& bucket, std::size_t slot_index, const runtime::Handler& done) {
  if (stays()) return done();
  const BucketLayout& layout = layouts_[bucket.unit];
  const std::size_t bytes = (layout.end(bucket.index) - layout.begin(bucket.index)) * sizeof(float);
  bring(bucket, slot(slot_index).first(offload::Tier::whole_blocks(bytes)), done);
}

void StateTier::bring(const Bucket& bucket, std::span<std::byte> to, const runtime::Handler& done) {
  const std::size_t offset = layouts_[bucket.unit].record_offset(bucket.index);
  if (options_.step == StepPlace::host) {
    tiers_->fetch_to_host(region(bucket, Copy::counts), offset, to, done);
  } else {
    tiers_->fetch(region(bucket, Copy::counts), offset, to, done);
  }
}

void StateTier::store(const Bucket& bucket, std::size_t slot_index, Copy to, const runtime::Handler& done) {
  if (stays()) return done();
  const BucketLayout& layout = layouts_[bucket.unit];
  const std::span<std::byte> from = slot(slot_index).first(layout.record_bytes(bucket.index));
  if (options_.step == StepPlace::host) {
    tiers_->store_from_host(region(bucket, to), layout.record_offset(bucket.index), from, done);
  } else {
    tiers_->store(region(bucket, to), layout.record_offset(bucket.index), from, done);
  }
}

void StateTier::commit(const Bucket& bucket) { flipped_[bucket.unit][bucket.index].flip(); }

std::vector<StateTier::Run> StateTier::runs(const Bucket& bucket, std::size_t slot_index, Copy to) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const bool at_once = unit.cut.buckets() == 1 && unit.parameters.range.contains(unit.optimizer);
  const bool separate_master = states_->separate_master();
  std::vector<Run> runs;
  std::size_t offset = 0;
  for (const Range& range : at_once ? std::vector{unit.optimizer} : unit.cut.runs(unit.optimizer, bucket.index)) {
    Run run{.range = range, .offset = offset};
    const std::size_t in_unit = range.begin - unit.optimizer.begin;
    if (on_device()) {
      run.weights = reinterpret_cast<float*>(unit.master.at(range.begin));
      run.m = unit.m + in_unit;
      run.v = unit.v + in_unit;
    } else {
      const auto array = [&](std::size_t which) {
        const std::size_t begin = layouts_[bucket.unit].array_offset(bucket.index, which);
        return reinterpret_cast<float*>(record(bucket, slot_index, to) + begin) + offset;
      };
      run.weights = separate_master ? array(0) : reinterpret_cast<float*>(unit.parameters.at(range.begin));
      run.m = array(separate_master ? 1 : 0);
      run.v = array(separate_master ? 2 : 1);
    }
    offset += range.count;
    runs.push_back(run);
  }
  return runs;
}

void StateTier::load(Source weights, runtime::Handler done) {
  // Moments begin at zero, as the tier does.
  if (on_device() || !states_->separate_master()) return loop_->post(std::move(done));
  weights_ = std::move(weights);
  loaded_ = std::move(done);
  load_next(0, 0);
}

void StateTier::load_next(std::size_t u, std::size_t index) {
  while (u < layouts_.size() && index == layouts_[u].buckets()) {
    ++u;
    index = 0;
  }
  if (u == layouts_.size()) {
    weights_ = nullptr;
    return loop_->post(std::exchange(loaded_, nullptr));
  }
  const UnitState& unit = states_->all()[u];
  auto* values = arena_->slot_as<float>(*memory_.values);
  if (!stays()) runtime::fill_zero(compute_, slot(0).data(), memory_.slot_bytes);
  for (const Run& run : runs({u, index}, 0, Copy::counts)) {
    const std::size_t first = run.range.begin, last = std::min(first + run.range.count, unit.spec->elements());
    for (std::size_t begin = first; begin < last; begin += values_elements) {
      const std::size_t count = std::min(values_elements, last - begin);
      weights_(*unit.spec, begin, {values, count});
      runtime::copy(compute_, run.weights + (begin - first), values, count * sizeof(float));
      compute_.synchronize();  // before training, when nothing else happens
    }
  }
  compute_.synchronize();
  store({u, index}, 0, Copy::counts, [this, u, index] { load_next(u, index + 1); });
}

void StateTier::read(std::size_t u, std::size_t begin, std::span<float> out, runtime::Handler done) {
  if (out.empty()) return loop_->post(std::move(done));
  const UnitState& unit = states_->all()[u];
  const auto copy_out = [this, u, begin, out, done = std::move(done)](const float* weights, std::size_t count) {
    runtime::copy(compute_, out.data(), weights, count * sizeof(float));
    loop_->after_work(compute_, {"optimizer", "the copy of the weights of", states_->all()[u].spec->name}, [=, this] {
      if (count == out.size()) return done();
      read(u, begin + count, out.subspan(count), done);
    });
  };
  if (!states_->separate_master()) {
    return copy_out(reinterpret_cast<const float*>(unit.parameters.at(begin)), out.size());
  }
  if (on_device()) return copy_out(reinterpret_cast<const float*>(unit.master.at(begin)), out.size());
  // Of the record that has the first of them comes what it has of the rest of that finest piece.
  const std::size_t piece = unit.cut.piece_elements();
  const std::size_t number = (begin - unit.optimizer.begin) / piece, in_piece = (begin - unit.optimizer.begin) % piece;
  std::size_t index = 0;
  while (unit.cut.slice(index).begin + unit.cut.slice(index).count <= in_piece) ++index;
  const Range slice = unit.cut.slice(index);
  const std::size_t count = std::min(out.size(), slice.begin + slice.count - in_piece);
  const std::size_t in_record = (number * slice.count + in_piece - slice.begin) * sizeof(float);
  if (stays()) {
    return copy_out(reinterpret_cast<const float*>(record({u, index}, 0, Copy::counts) + in_record), count);
  }
  const std::size_t first_block = in_record / offload::Tier::block_bytes * offload::Tier::block_bytes;
  const std::size_t bytes =
      offload::Tier::whole_blocks(in_record - first_block + count * sizeof(float));
  tiers_->fetch(region({u, index}, Copy::counts), layouts_[u].record_offset(index) + first_block, slot(0).first(bytes),
                [this, copy_out, in_record, first_block, count] {
                  copy_out(reinterpret_cast<const float*>(slot(0).data() + (in_record - first_block)), count);
                });
}

}  // namespace ranvier::actors
