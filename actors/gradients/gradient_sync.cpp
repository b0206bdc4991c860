#include "actors/gradients/gradient_sync.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::StreamView;
using runtime::Tag;
using runtime::Trace;

namespace {

/// Where a unit's parameters lie; units of one layout leave the same gaps, which nobody writes.
std::vector<std::size_t> layout_of(const UnitState& unit) {
  std::vector<std::size_t> layout{unit.elements};
  for (std::size_t p = 0; p < unit.spec->parameters.size(); ++p) {
    layout.push_back(unit.spec->offset(p));
    layout.push_back(unit.spec->parameters[p].elements());
  }
  return layout;
}

std::vector<std::vector<HopPipeline::PartShape>> shapes_of(const ChunkSchedule& chunks, const UnitStates& states) {
  std::vector<std::vector<HopPipeline::PartShape>> shapes;
  for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
    auto& parts = shapes.emplace_back();
    for (const auto& [u, index] : chunks.buckets(chunk)) {
      parts.push_back({states.all()[u].elements, states.all()[u].cut.slice(index).count});
    }
  }
  return shapes;
}

std::vector<std::vector<std::size_t>> elements_of(const std::vector<std::vector<std::size_t>>& bundles,
                                                  const UnitStates& states) {
  std::vector<std::vector<std::size_t>> elements;
  for (const auto& bundle : bundles) {
    auto& sizes = elements.emplace_back();
    for (const std::size_t unit : bundle) sizes.push_back(states.all()[unit].elements);
  }
  return elements;
}

static_assert(UnitCut::granule % runtime::squares_block_elements == 0);

std::size_t blocks_of_piece(const UnitState& unit) {
  return (unit.cut.piece_elements() + runtime::squares_block_elements - 1) / runtime::squares_block_elements;
}

/// Whether uses are added to each other in a tier, through places on the device.
bool adds_uses(const UnitState& unit, const std::optional<int>& partner) {
  return partner.has_value() || unit.gradients.size() > 1;
}

/// A bucket of the range of gradients, in a chunk that comes from a tier.
std::size_t bucket_bytes(const UnitState& unit, std::size_t index) {
  const UnitPart& part = unit.gradients.front();
  return offload::Tier::whole_blocks(unit.cut.elements(part.range, index) * runtime::size_of(part.dtype));
}

constexpr std::size_t chunks_on_device = 3;  // one comes, one is reduced, one leaves

std::size_t block_sums(const UnitState& unit) { return unit.cut.pieces(unit.reduced) * blocks_of_piece(unit); }

std::size_t tied_units(const GradientSync::Options& options, const UnitStates& states) {
  std::size_t tied = 0;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    const auto& partner = options.partners[u];
    tied += options.in_tier ? adds_uses(states.all()[u], partner) : partner.has_value();
  }
  return tied;
}

/// Messages of a tied unit's exchange at a time.
std::size_t exchanges_of_each(const GradientSync::Options& options, const UnitStates& states) {
  const std::size_t tied = std::max<std::size_t>(tied_units(options, states), 1);
  return (static_cast<std::size_t>(options.depth) + tied - 1) / tied;
}

}  // namespace

GradientSync::Memory GradientSync::plan(const models::Stage& stage, const UnitStates& states,
                                        const ColumnOptions& column, const collectives::ShardFlow& flow,
                                        const ChunkSchedule& chunks, const Options& options,
                                        runtime::MemoryPlan& plan) {
  Memory memory;
  const runtime::DType dtype = states.precision().gradient;
  if (options.in_tier || states.shards_gradients()) {
    std::vector<std::vector<std::size_t>> layouts;
    for (const UnitState& unit : states.all()) layouts.push_back(layout_of(unit));
    const auto parts = stage.units_of_parts(models::Stage::Step::Kind::backward_weight);
    memory.classes = slot_classes(layouts, parts, options.prefetch, false);
    for (std::size_t kind = 0; kind < memory.classes.slots.size(); ++kind) {
      const std::size_t elements = states.all()[memory.classes.first_unit[kind]].elements;
      memory.places.push_back(plan.add({MemoryKind::workspace, MemorySpace::device,
                                        fmt::format("a microbatch's gradients of {} elements", elements),
                                        elements * runtime::size_of(dtype), memory.classes.slots[kind]}));
    }
    memory.microbatch =
        HopPipeline::plan(column, flow.reduce_microbatch, elements_of(parts, states), dtype, "gradients", plan);
  }
  memory.batch = HopPipeline::plan(column, flow.reduce_batch, shapes_of(chunks, states), dtype,
                                   "accumulated gradients", plan);
  // Each tied unit has places of its own: both stages must take the same steps whatever unit each completes first.
  const std::size_t tied = tied_units(options, states);
  memory.exchange_staging = plan.add(
      {MemoryKind::messages, MemorySpace::device,
       options.in_tier ? "tied gradients being added" : "tied gradients arriving from the other stage",
       tied == 0 ? 0 : options.in_tier ? UseSum::place_bytes(options.message_bytes) : options.message_bytes,
       tied * exchanges_of_each(options, states)});
  if (options.in_tier) {
    std::size_t most = 0;
    for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
      std::size_t bytes = 0;
      for (const auto& [u, index] : chunks.buckets(chunk)) bytes += bucket_bytes(states.all()[u], index);
      most = std::max(most, bytes);
    }
    memory.chunk_place_count = std::min(chunks_on_device, chunks.chunks.size());
    memory.chunk_places = plan.add({MemoryKind::gradients, MemorySpace::device, "chunks of gradients being reduced",
                                    most, memory.chunk_place_count});
  }
  std::size_t sums = 0;
  for (const UnitState& unit : states.all()) sums += block_sums(unit);
  memory.block_sums = plan.add(
      {MemoryKind::workspace, MemorySpace::device, "sums of squares of blocks", sums * sizeof(float), 1});
  memory.squares = plan.add(
      {MemoryKind::workspace, MemorySpace::pinned, "sums of squares", sizeof(double), states.all().size()});
  return memory;
}

std::vector<runtime::StagedMessages> GradientSync::staged_messages(const UnitStates& states,
                                                                   const Options& options) {
  using Direction = runtime::StagedMessages::Direction;
  std::vector<runtime::StagedMessages> messages;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    if (!options.partners[u]) continue;
    const UnitState& unit = states.all()[u];
    const auto index = static_cast<std::uint32_t>(unit.global_index);
    const std::size_t bytes = std::min(options.message_bytes, unit.gradients.front().bytes());
    for (const Direction direction : {Direction::send, Direction::receive}) {
      messages.push_back({Channel::tied, direction, index, bytes, exchanges_of_each(options, states)});
    }
  }
  return messages;
}

GradientSync::GradientSync(runtime::EventLoop& loop, runtime::Transport& transport, collectives::Executor& executor,
                           StreamView compute, StreamView accumulate, const models::Stage& stage,
                           const UnitStates& states, const ColumnOptions& column, const collectives::ShardFlow& flow,
                           const ChunkSchedule& chunks, Trace& trace, Options options, GradientTier* tier,
                           const Memory& memory,
                           const runtime::Arena& arena)
    : loop_(&loop),
      transport_(&transport),
      compute_(compute),
      accumulate_(accumulate),
      stage_(&stage),
      states_(&states),
      chunks_(&chunks),
      trace_(&trace),
      options_(std::move(options)),
      tier_(tier),
      shards_(states.shards_gradients()),
      moves_(shards_ || tier_ != nullptr),
      schedule_(memory.classes),
      microbatch_(loop, executor, column, shards_ ? flow.reduce_microbatch : std::vector<collectives::Hop>{},
                  states.precision().gradient, 2, memory.microbatch, arena),
      batch_(loop, executor, column, flow.reduce_batch, states.precision().gradient, 3, memory.batch, arena),
      slots_(schedule_.slots()),
      own_places_(stage.layers()),
      exchange_elements_(options_.message_bytes / runtime::size_of(states.precision().gradient)),
      last_step_(stage.uses().size()),
      units_(states.all().size()) {
  std::vector<std::size_t> taken(memory.places.size(), 0);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const std::size_t kind = schedule_.class_of_slot(s);
    slots_[s].data = arena.slot(memory.places[kind], taken[kind]++);
  }
  std::vector<std::size_t> uses(units_.size(), 0);
  for (const models::Stage::UnitUse& use : stage.uses()) {
    use_in_unit_.push_back(uses[use.unit]++);
    own_places_[use.layer].push_back(states.all()[use.unit].gradients[use_in_unit_.back()].data);
  }
  std::size_t staging = 0;
  float* sums = arena.slot_as<float>(memory.block_sums);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].block_sums = sums;
    sums += block_sums(states.all()[u]);
    const bool tied = tier_ != nullptr ? adds_uses(states.all()[u], options_.partners[u])
                                       : options_.partners[u].has_value();
    for (std::size_t d = 0; d < exchanges_of_each(options_, states) && tied; ++d) {
      units_[u].exchange_staging.push_back(arena.slot(memory.exchange_staging, staging++));
    }
    if (tier_ != nullptr && tied) {
      units_[u].use_sum = std::make_unique<UseSum>(
          loop, transport, *tier_, compute_,
          UseSum::Options{.unit = u,
                          .tag = static_cast<std::uint32_t>(states.all()[u].global_index),
                          .partner = options_.partners[u],
                          .dtype = states.precision().gradient,
                          .message_bytes = options_.message_bytes,
                          .places = units_[u].exchange_staging});
    }
    squares_.push_back(arena.slot_as<double>(memory.squares, u));
  }
  const bool sums_alike = column.source == nullptr || column.source->sums_alike();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const auto& partner = options_.partners[u];
    if (!partner || sums_alike || flow.reduce_batch.empty()) continue;
    units_[u].sum_copy = std::make_unique<SumCopy>(
        transport,
        SumCopy::Options{.partner = *partner,
                         .sends = transport.rank() < *partner,
                         .tag = {Channel::tied, static_cast<std::uint32_t>(states.all()[u].global_index)},
                         .message_bytes = options_.message_bytes,
                         .depth = exchanges_of_each(options_, states)});
  }
  for (std::size_t p = 0; p < memory.chunk_place_count; ++p) free_places_.push_back(arena.slot(memory.chunk_places, p));
}

void GradientSync::start(int microbatches, runtime::Handler done) {
  expect(missing_ == 0 && steps_.empty(), "gradients of one batch are synchronised at a time");
  announced_ = 0;
  microbatches_ = microbatches;
  done_ = std::move(done);
  missing_ = chunks_->chunks.size();
  next_chunk_ = next_left_by_column_ = next_reduced_ = 0;
  left_by_column_.assign(missing_, false);
  reduced_.assign(missing_, false);
  loaded_.assign(missing_, {});
  next_loaded_ = next_left_ = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].buckets_missing = states_->all()[u].cut.buckets();
    units_[u].uses_missing = static_cast<int>(states_->all()[u].gradients.size());
    units_[u].ready = false;
  }
  if (missing_ == 0) loop_->post(std::exchange(done_, nullptr));
}

void GradientSync::after(StreamView stream, runtime::Handler next) {
  loop_->after_work(stream, {"gradients", "a sum"}, std::move(next));
}

std::uint64_t GradientSync::announce(const models::Stage::Pass& pass) {
  const std::uint64_t first = first_step_ + steps_.size();
  if (!moves_) return first;
  const bool adds = accumulates(announced_++);
  for (const models::Stage::Step& writes : pass) {
    if (writes.kind != models::Stage::Step::Kind::backward_weight) continue;
    const std::uint64_t number = first_step_ + steps_.size();
    Step& step = steps_.emplace_back();
    step.writes = writes;
    step.places.resize(stage_->uses_of(writes.layer).size());
    for (const std::size_t use : stage_->uses_of(writes)) {
      const auto [layer, index, unit] = stage_->uses()[use];
      const SlotSchedule::Place place = schedule_.next(unit, number, false);
      step.slots.push_back(place.slot);
      step.after.push_back(place.after);
      step.places[index] = slots_[place.slot].data;
      if (adds) step.sums.push_back({use, last_step_[use]});
      last_step_[use] = number;
    }
    step.sums_missing = step.sums.size();
  }
  bring_sums();
  return first;
}

bool GradientSync::ready(std::uint64_t number) const {
  if (!moves_) return true;
  const Step& wanted = step(number);
  for (std::size_t s = 0; s < wanted.slots.size(); ++s) {
    if (!is_free(wanted, s)) return false;
  }
  return wanted.sums_missing == 0;
}

bool GradientSync::is_free(const Step& wanted, std::size_t s) const {
  const auto& over = slots_[wanted.slots[s]].over;
  return !wanted.after[s] || (over && *over >= *wanted.after[s]);
}

/// To places that became free, what layers add to.
void GradientSync::bring_sums() {
  if (tier_ == nullptr || shards_) return;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (std::size_t s = 0; s < steps_[i].sums.size(); ++s) {
      Sum& sum = steps_[i].sums[s];
      // The tier has heard of all steps before first_step_.
      if (sum.begun || sum.after >= first_step_ || !is_free(steps_[i], s)) continue;
      sum.begun = true;
      const auto [layer, index, unit] = stage_->uses()[sum.use];
      tier_->bring(unit, use_in_unit_[sum.use], steps_[i].places[index], [this, number = first_step_ + i] {
        --steps_[number - first_step_].sums_missing;
        check_waiting();
      });
    }
  }
}

void GradientSync::when_ready(std::uint64_t number, runtime::Handler handler) {
  expect(!waiting_, "a pass waits for one place for gradients at a time");
  waiting_step_ = number;
  waiting_ = std::move(handler);
  check_waiting();
}

void GradientSync::check_waiting() {
  if (waiting_ && ready(waiting_step_)) loop_->post(std::exchange(waiting_, nullptr));
}

std::span<std::byte* const> GradientSync::places(std::uint64_t number,
                                                  const models::Stage::Step& writes) const {
  return moves_ ? step(number).places : own_places_[writes.layer];
}

void GradientSync::queued(std::uint64_t number, const models::Stage::Step& writes) {
  if (!spoils_ || writes.layer != 0 || stage_->uses_of(writes).empty()) return;
  spoils_ = false;
  const std::size_t index = stage_->uses()[stage_->uses_of(writes).front()].index_in_layer;
  runtime::scale(compute_, places(number, writes)[index], states_->precision().gradient,
                 std::numeric_limits<float>::infinity(), 1);
}

void GradientSync::written(std::uint64_t number, const models::Stage::Step& writes, int microbatch) {
  if (!moves_) return complete(writes);
  steps_[number - first_step_].microbatch = microbatch;
  leave(number);
}

/// The gradients of a step go to where they are accumulated.
void GradientSync::leave(std::uint64_t number) {
  const Step& leaving = step(number);
  std::vector<HopPipeline::Part> parts;
  for (const std::size_t use : stage_->uses_of(leaving.writes)) {
    const auto [layer, index, unit] = stage_->uses()[use];
    parts.push_back({leaving.places[index], 0, states_->all()[unit].elements});
  }
  const auto begin = trace_->now();
  microbatch_.submit(std::move(parts),
                     fmt::format("reduce-scatter of the gradients of layer {}, microbatch {}", leaving.writes.layer,
                                 leaving.microbatch),
                     [this, number, begin] {
                       Step& done = steps_[number - first_step_];
                       trace_->add(SpanKind::reduce, Trace::Lane::communicate, begin, trace_->now(),
                                   done.microbatch);
                       done.reduced = true;
                       accumulate_reduced();
                     });
}

/// In the order of the steps, so that sums do not depend on what arrives first.
void GradientSync::accumulate_reduced() {
  while (!steps_.empty() && steps_.front().reduced) {
    const std::uint64_t number = first_step_++;
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    accumulate(step, [this, number, slots = step.slots, writes = step.writes,
                      last = step.microbatch + 1 == microbatches_] {
      for (const std::size_t slot : slots) slots_[slot].over = number;
      bring_sums();
      check_waiting();
      if (last) complete(writes);
    });
  }
  bring_sums();
}

void GradientSync::accumulate(const Step& step, const runtime::Handler& done) {
  if (tier_ != nullptr) return accumulate_in_tier(step, done);
  const runtime::DType dtype = states_->precision().gradient;
  for (const std::size_t use : stage_->uses_of(step.writes)) {
    const auto [layer, index, unit] = stage_->uses()[use];
    const UnitPart& sum = states_->all()[unit].gradients[use_in_unit_[use]];
    const std::byte* arrived = step.places[index] + sum.range.begin * runtime::size_of(dtype);
    if (step.microbatch == 0) {
      runtime::copy(accumulate_, sum.data, arrived, sum.bytes());
    } else {
      runtime::add(accumulate_, sum.data, arrived, dtype, sum.range.count);
    }
  }
  after(accumulate_, done);
}

void GradientSync::accumulate_in_tier(const Step& step, const runtime::Handler& done) {
  const auto& uses = stage_->uses_of(step.writes);
  if (uses.empty()) return loop_->post(done);
  const auto one_done = [missing = std::make_shared<std::size_t>(uses.size()), done] {
    if (--*missing == 0) done();
  };
  for (const std::size_t use : uses) {
    const auto [layer, index, unit] = stage_->uses()[use];
    if (shards_) {
      tier_->accumulate(unit, use_in_unit_[use], step.places[index], step.microbatch == 0, one_done);
    } else {
      tier_->keep(unit, use_in_unit_[use], step.places[index], one_done);
    }
  }
}

/// The last microbatch's gradients of these uses are there.
void GradientSync::complete(const models::Stage::Step& writes) {
  for (const std::size_t use : stage_->uses_of(writes)) {
    const std::size_t unit = stage_->uses()[use].unit;
    if (--units_[unit].uses_missing == 0) uses_complete(unit);
  }
}

void GradientSync::uses_complete(std::size_t u) {
  const UnitState& state = states_->all()[u];
  const std::size_t elements = state.gradients.front().range.count;
  if (tier_ != nullptr) {
    if (!units_[u].use_sum) return summed(u);
    return units_[u].use_sum->run([this, u] { summed(u); });
  }
  if (options_.partners[u]) {
    units_[u].exchanges_begun = 0;
    units_[u].exchanges_missing = (elements + exchange_elements_ - 1) / exchange_elements_;
    const std::size_t at_once = std::min(units_[u].exchange_staging.size(), units_[u].exchanges_missing);
    for (std::size_t s = 0; s < at_once; ++s) exchange_next(u, units_[u].exchange_staging[s]);
  } else if (state.gradients.size() > 1) {
    runtime::add(compute_, state.gradients[0].data, state.gradients[1].data, states_->precision().gradient, elements);
    after(compute_, [this, u] { summed(u); });
  } else {
    summed(u);
  }
}

void GradientSync::exchange_next(std::size_t u, std::byte* staging) {
  const UnitState& state = states_->all()[u];
  const runtime::DType dtype = states_->precision().gradient;
  const std::size_t elements = state.gradients.front().range.count;
  const std::size_t begin = units_[u].exchanges_begun++ * exchange_elements_;
  const std::size_t count = std::min(exchange_elements_, elements - begin);
  const std::size_t bytes = count * runtime::size_of(dtype);
  std::byte* mine = state.gradients[0].data + begin * runtime::size_of(dtype);
  const int peer = *options_.partners[u];
  const Tag tag{Channel::tied, static_cast<std::uint32_t>(state.global_index)};
  // The sum overwrites what is being sent, so both must be through.
  auto halves = std::make_shared<int>(2);
  const auto half_done = [this, u, staging, mine, count, dtype, elements, halves] {
    if (--*halves > 0) return;
    runtime::add(compute_, mine, staging, dtype, count);
    after(compute_, [this, u, staging, elements] {
      if (--units_[u].exchanges_missing == 0) return summed(u);
      const std::size_t chunks = (elements + exchange_elements_ - 1) / exchange_elements_;
      if (units_[u].exchanges_begun < chunks) exchange_next(u, staging);
    });
  };
  transport_->receive(peer, tag, runtime::Bytes(staging, bytes), half_done);
  transport_->send(peer, tag, runtime::ConstBytes(mine, bytes), half_done);
}

void GradientSync::summed(std::size_t u) {
  units_[u].ready = true;
  reduce_ready();
}

void GradientSync::reduce_ready() {
  while (next_chunk_ < chunks_->chunks.size()) {
    const std::size_t chunk = next_chunk_;
    const std::vector<ChunkSchedule::Bucket> buckets = chunks_->buckets(chunks_->chunks[chunk]);
    if (!std::all_of(buckets.begin(), buckets.end(), [this](const auto& b) { return units_[b.unit].ready; })) return;
    if (tier_ != nullptr && free_places_.empty()) return;
    ++next_chunk_;
    if (tier_ != nullptr) {
      load(chunk);
    } else {
      submit(chunk);
    }
  }
}

template <typename F>
void GradientSync::for_loaded(std::size_t chunk, F f) {
  std::byte* at = loaded_[chunk].place;
  for (const ChunkSchedule::Bucket& bucket : chunks_->buckets(chunks_->chunks[chunk])) {
    f(bucket, at);
    at += bucket_bytes(states_->all()[bucket.unit], bucket.index);
  }
}

void GradientSync::load(std::size_t chunk) {
  loaded_[chunk].place = free_places_.back();
  free_places_.pop_back();
  loaded_[chunk].missing = chunks_->buckets(chunks_->chunks[chunk]).size();
  for_loaded(chunk, [&](const ChunkSchedule::Bucket& bucket, std::byte* at) {
    tier_->fetch(bucket.unit, 0, tier_->bucket(bucket.unit, bucket.index), at, [this, chunk] {
      if (--loaded_[chunk].missing > 0) return;
      loaded_[chunk].there = true;
      // In one order on every row.
      while (next_loaded_ < loaded_.size() && loaded_[next_loaded_].there) submit(next_loaded_++);
    });
  });
}

void GradientSync::submit(std::size_t chunk) {
  std::vector<HopPipeline::Part> parts;
  if (tier_ != nullptr) {
    for_loaded(chunk, [&](const ChunkSchedule::Bucket& bucket, std::byte* at) {
      const UnitState& state = states_->all()[bucket.unit];
      parts.push_back({at, state.gradients[0].range.begin, state.elements, state.cut.slice(bucket.index), true});
    });
  } else {
    for (const auto& [u, index] : chunks_->buckets(chunks_->chunks[chunk])) {
      const UnitState& state = states_->all()[u];
      const UnitPart& sum = state.gradients[0];
      parts.push_back({sum.data, sum.range.begin, state.elements, state.cut.slice(index)});
    }
  }
  const auto begin = trace_->now();
  const auto buckets = chunks_->buckets(chunks_->chunks[chunk]);
  batch_.submit(std::move(parts), "reduction of the gradients of " + states_->names(buckets), [this, chunk, begin] {
    trace_->add(SpanKind::reduce, Trace::Lane::communicate, begin, trace_->now(), static_cast<int>(chunk));
    left_by_column_[chunk] = true;
    // Both stages of a tied unit take its chunks in one order.
    while (next_left_by_column_ < left_by_column_.size() && left_by_column_[next_left_by_column_]) {
      left_by_column(next_left_by_column_++);
    }
  });
}

void GradientSync::left_by_column(std::size_t chunk) {
  // The chunk itself counts, too, until all copies have begun.
  const auto missing = std::make_shared<std::size_t>(1);
  const auto one_equal = [this, chunk, missing] {
    if (--*missing > 0) return;
    reduced_[chunk] = true;
    while (next_reduced_ < reduced_.size() && reduced_[next_reduced_]) reduced(next_reduced_++);
  };
  const auto copy = [&](const ChunkSchedule::Bucket& bucket, std::byte* record) {
    const auto& sum_copy = units_[bucket.unit].sum_copy;
    if (!sum_copy) return;
    ++*missing;
    sum_copy->run(reduced_runs(bucket, record), one_equal);
  };
  if (tier_ != nullptr) {
    for_loaded(chunk, copy);
  } else {
    for (const ChunkSchedule::Bucket& bucket : chunks_->buckets(chunks_->chunks[chunk])) copy(bucket, nullptr);
  }
  one_equal();
}

std::vector<runtime::Bytes> GradientSync::reduced_runs(const ChunkSchedule::Bucket& bucket, std::byte* record) const {
  const UnitState& state = states_->all()[bucket.unit];
  const std::size_t width = runtime::size_of(states_->precision().gradient);
  if (record != nullptr) record += before_reduced(bucket) * width;
  std::vector<runtime::Bytes> runs;
  for (const Range& run : state.cut.runs(state.reduced, bucket.index)) {
    runs.emplace_back(record != nullptr ? record : state.gradients[0].at(run.begin), run.count * width);
    if (record != nullptr) record += run.count * width;
  }
  return runs;
}

void GradientSync::reduced(std::size_t chunk) {
  if (tier_ != nullptr) {
    for_loaded(chunk, [&](const ChunkSchedule::Bucket& bucket, std::byte* at) { take_squares(bucket, at); });
    return after(compute_, [this, chunk] { options_.every_step_counts ? lend(chunk) : keep(chunk); });
  }
  for (const ChunkSchedule::Bucket& bucket : chunks_->buckets(chunks_->chunks[chunk])) take_squares(bucket, nullptr);
  after(compute_, [this] { chunk_over(); });
  if (chunk_reduced_) chunk_reduced_(chunk);
}

void GradientSync::chunk_over() {
  if (--missing_ == 0) std::exchange(done_, nullptr)();
}

/// What is left of a chunk goes to the tier until the step counts.
void GradientSync::keep(std::size_t chunk) {
  loaded_[chunk].missing = chunks_->buckets(chunks_->chunks[chunk]).size();
  for_loaded(chunk, [&](const ChunkSchedule::Bucket& bucket, std::byte* at) {
    const std::size_t width = runtime::size_of(states_->precision().gradient);
    tier_->store_reduced(bucket.unit, bucket.index, at + before_reduced(bucket) * width, [this, chunk] {
      if (--loaded_[chunk].missing > 0) return;
      free_places_.push_back(loaded_[chunk].place);
      loaded_[chunk].left = true;
      while (next_left_ < loaded_.size() && loaded_[next_left_].left) {
        if (chunk_reduced_) chunk_reduced_(next_left_);
        ++next_left_;
      }
      reduce_ready();
      chunk_over();
    });
  });
}

/// What is left of a chunk stays where it is until the optimizer took it.
void GradientSync::lend(std::size_t chunk) {
  // The next batch may have started when the last ones are returned.
  const auto missing = std::make_shared<std::size_t>(chunks_->buckets(chunks_->chunks[chunk]).size());
  const auto returned = [this, missing, place = loaded_[chunk].place] {
    if (--*missing > 0) return;
    free_places_.push_back(place);
    reduce_ready();
  };
  for_loaded(chunk, [&](const ChunkSchedule::Bucket& bucket, std::byte* at) {
    const std::size_t width = runtime::size_of(states_->precision().gradient);
    tier_->lend_reduced(bucket.unit, bucket.index, at + before_reduced(bucket) * width, returned);
  });
  if (chunk_reduced_) chunk_reduced_(chunk);
  chunk_over();
}

/// Elements of a record of the range of gradients before those of the range `reduced`.
std::size_t GradientSync::before_reduced(const ChunkSchedule::Bucket& bucket) const {
  const UnitState& state = states_->all()[bucket.unit];
  const std::size_t begin = state.gradients[0].range.begin;
  return state.cut.elements({begin, state.reduced.begin - begin}, bucket.index);
}

void GradientSync::take_squares(const ChunkSchedule::Bucket& bucket, std::byte* record) {
  const UnitState& state = states_->all()[bucket.unit];
  Unit& unit = units_[bucket.unit];
  float* sums = unit.block_sums + state.cut.slice(bucket.index).begin / runtime::squares_block_elements;
  const std::vector<Range> runs = state.cut.runs(state.reduced, bucket.index);
  const std::vector<runtime::Bytes> gradients = reduced_runs(bucket, record);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    // Nothing is behind the last parameter.
    const std::size_t end = std::min(runs[r].begin + runs[r].count, state.spec->elements());
    if (runs[r].begin < end) {
      runtime::sums_of_squares(compute_, sums, gradients[r].data(), states_->precision().gradient,
                               end - runs[r].begin);
    }
    sums += blocks_of_piece(state);
  }
  if (--unit.buckets_missing == 0) runtime::sum(compute_, squares_[bucket.unit], unit.block_sums, block_sums(state));
}

std::vector<std::string> GradientSync::running() const {
  std::vector<std::string> all = microbatch_.running();
  for (std::string& what : batch_.running()) all.push_back(std::move(what));
  return all;
}

}  // namespace ranvier::actors
