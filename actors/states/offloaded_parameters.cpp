#include "actors/states/offloaded_parameters.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;

namespace {

constexpr std::size_t max_answers = 2;                         // buffers for lending; each may serve several ranks
constexpr std::size_t values_elements = std::size_t{1} << 18;  // elements per call of a source

}  // namespace

OffloadedParameters::Plan OffloadedParameters::plan(PlanContext& planner, int prefetch, bool lends) {
  Plan plan;
  const UnitStates& states = *planner.share.states;
  const bool second_leaves = std::ranges::any_of(states.all(), [](const UnitState& unit) {
    return unit.secondary && unit.secondary_tier != TierKind::device;
  });
  if (!planner.tiers.parameters_leave() && !second_leaves) return plan;
  std::size_t max_bytes = 0, answer_bytes = 0;  // in files
  for (const UnitState& unit : states.all()) {
    const auto add = [&](std::vector<ShardRecords>& all, const UnitView* part, TierKind tier,
                         const std::string& name) {
      ShardRecords& records = all.emplace_back(unit.cut, part == nullptr ? Range() : part->range,
                                               std::vector{states.precision().compute});
      if (part != nullptr && tier != TierKind::device)
        records.reserve(planner, tier, MemoryKind::parameters, unit.spec->name + name);
      max_bytes = std::max(max_bytes, records.file_bytes());
    };
    add(plan.parameters, &unit.parameters, unit.tier, " parameters");
    add(plan.secondary, unit.secondary ? &*unit.secondary : nullptr, unit.secondary_tier,
        " parameters for backward passes");
  }
  if (planner.tiers.parameters_leave())
    plan.values = planner.memory.add({MemoryKind::workspace, MemorySpace::pinned,
                                      "weights on their way to the tier", values_elements * sizeof(float), 1});
  if (max_bytes == 0) return plan;
  plan.buffers =
      SlotPool::plan(planner.memory, {MemoryKind::parameters, MemorySpace::pinned, "parameters read ahead",
                                      max_bytes, 1 + static_cast<std::size_t>(std::max(prefetch, 0))});
  if (!lends) return plan;
  using Kind = models::Stage::PassStep::Kind;
  for (const Kind step : {Kind::forward, Kind::backward_input}) {
    for (const auto& units : planner.share.stage->units_of_parts(step)) {
      std::size_t of_step = 0;
      for (const std::size_t u : units)  // recomputed forward steps access secondary shards
        of_step += std::max(plan.parameters[u].file_bytes(), plan.secondary[u].file_bytes());
      answer_bytes = std::max(answer_bytes, of_step);
    }
  }
  plan.answers = SlotPool::plan(planner.memory, {MemoryKind::messages, MemorySpace::pinned,
                                                 "parameters that others ask for", answer_bytes, max_answers});
  return plan;
}

OffloadedParameters::OffloadedParameters(const RankContext& context, const ModelShare& share, const Plan& plan)
    : context_(&context),
      states_(share.states.get()),
      plan_(plan),
      width_(size_of(states_->precision().compute)),
      refresh_code_(share.refresh_code),
      buffers_(context.arena, plan.buffers),
      answers_(plan.answers.slots) {}

const ShardRecords& OffloadedParameters::records(Shard shard) const {
  return (shard.secondary ? plan_.secondary : plan_.parameters).at(shard.unit);
}

void OffloadedParameters::load(const Source& weights, const runtime::Handler& done, std::size_t unit) {
  if (unit == states_->all().size()) return context_->loop.post(done);
  if (states_->all()[unit].on_device()) return load(weights, done, unit + 1);
  const ShardRecords& records = plan_.parameters[unit];
  const models::UnitSpec& spec = *states_->all()[unit].spec;
  std::byte* const image =
      records.in_files() ? context_->arena.slot(plan_.buffers.memory) : records.memory(*context_);
  auto* values = context_->arena.slot_as<float>(*plan_.values);
  runtime::fill_zero(context_->compute, image, records.region_bytes());
  for (const ShardRecords::Run& run : records.runs()) {
    const std::size_t end = std::min(run.begin + run.count, spec.elements());
    for (std::size_t begin = run.begin; begin < end; begin += values_elements) {
      const std::size_t count = std::min(values_elements, end - begin);
      weights(spec, begin, {values, count});
      runtime::cast(context_->compute, image + run.offset + (begin - run.begin) * width_,
                    states_->precision().compute, values, runtime::DType::f32, count);
      context_->compute.synchronize();  // only before training, when blocking is harmless
    }
    if (refresh_code_ && states_->all()[unit].trained())
      runtime::round_to_blocks(context_->compute, *refresh_code_, image + run.offset, states_->precision().compute,
                               run.count);
  }
  context_->compute.synchronize();
  const auto go_on = [=, this] { load(weights, done, unit + 1); };
  if (!records.in_files()) return context_->loop.post(go_on);
  records.move_image(*context_, IoKind::write, image, go_on);
}

void OffloadedParameters::store(std::size_t unit, std::size_t bucket, std::byte* record, runtime::Handler done) {
  const ShardRecords& records = plan_.parameters[unit];
  records.move_record(*context_, IoKind::write, bucket, 0, {record, records.elements(bucket) * width_},
                      std::move(done));
}

void OffloadedParameters::store_from(Shard shard, std::byte* whole, runtime::Handler done) {
  records(shard).move(*context_, IoKind::write, whole, std::move(done));
}

void OffloadedParameters::announce(Shard shard) {
  if (records(shard).in_files()) readings_.push_back(std::make_shared<Reading>(Reading{.shard = shard}));
}

void OffloadedParameters::fetch(Shard shard, std::byte* whole, runtime::Handler done) {
  if (!records(shard).in_files()) return records(shard).move(*context_, IoKind::read, whole, std::move(done));
  const auto next = std::ranges::find_if(readings_, [](const auto& reading) { return reading->whole == nullptr; });
  expect(next != readings_.end() && (*next)->shard == shard, "unit {} is fetched where another one was announced",
         shard.unit);
  const auto reading = *next;
  reading->whole = whole;
  reading->done = std::move(done);
  if (reading->here) return copy_out(reading);
  if (reading->buffer.data() == nullptr) read([](Shard) { return false; });
}

void OffloadedParameters::read_ahead(const std::function<bool(Shard)>& may_be_read) {
  if (plan_.buffers.slots > 1) read(may_be_read);
}

void OffloadedParameters::read(const std::function<bool(Shard)>& may) {
  for (const auto& reading : readings_) {
    if (reading->buffer.data() != nullptr) continue;
    if (!buffers_.has_free() || (reading->whole == nullptr && !may(reading->shard))) return;
    reading->buffer = buffers_.take();
    records(reading->shard).move_image(*context_, IoKind::read, reading->buffer.data(), [this, reading] {
      reading->here = true;
      if (reading->whole != nullptr) copy_out(reading);
    });
  }
}

void OffloadedParameters::copy_out(const std::shared_ptr<Reading>& reading) {
  const std::byte* image = reading->buffer.data();
  for (const ShardRecords::Run& run : records(reading->shard).runs()) {
    runtime::copy(context_->gather, reading->whole + run.begin * width_, image + run.offset, run.count * width_);
  }
  const runtime::WorkName work{name(), "the copy to the device of", states_->all()[reading->shard.unit].spec->name};
  context_->loop.after_work(context_->gather, work, [this, reading] {
    reading->buffer.release();
    std::erase(readings_, reading);
    read([](Shard) { return false; });
    reading->done();
  });
}

void OffloadedParameters::lend(std::vector<Shard> shards, std::uint64_t version, Send send) {
  if (records(shards.front()).in_files()) {
    loans_.push_back({std::move(shards), version, std::move(send)});
    return serve_loans();
  }
  std::vector<runtime::ConstBytes> ranges;
  for (const Shard shard : shards) records(shard).add_ranges(records(shard).memory(*context_), ranges);
  send(ranges, [] {});
}

void OffloadedParameters::serve_loans() {
  while (!loans_.empty()) {
    // Ranks request the same shards at about the same time; one read serves all of them.
    auto answer = std::ranges::find_if(answers_, [loan = &loans_.front()](const Answer& each) {
      return each.shards == loan->shards && each.version == loan->version;
    });
    const bool known = answer != answers_.end();
    if (!known) answer = std::ranges::find(answers_, 0, &Answer::users);
    if (answer == answers_.end()) return;
    Loan loan = std::move(loans_.front());
    loans_.pop_front();
    const auto a = static_cast<std::size_t>(answer - answers_.begin());
    if (known) {
      ++answer->users;
      answer->here ? send_from(a, loan.send) : answer->waiting.push_back(std::move(loan.send));
      continue;
    }
    *answer = {.shards = loan.shards, .version = loan.version, .here = false, .users = 1, .waiting = {loan.send}};
    std::byte* image = context_->arena.slot(plan_.answers.memory, a);
    const auto one_here = runtime::last_of(loan.shards.size(), [this, a] {
      answers_[a].here = true;
      for (const Send& send : std::exchange(answers_[a].waiting, {})) send_from(a, send);
    });
    for (const Shard shard : loan.shards) {
      records(shard).move_image(*context_, IoKind::read, image, one_here);
      image += records(shard).region_bytes();
    }
    expect(image <= context_->arena.slot(plan_.answers.memory, a) + plan_.answers.bytes,
           "an answer of {} units is too long", loan.shards.size());
  }
}

void OffloadedParameters::send_from(std::size_t a, const Send& send) {
  const std::byte* image = context_->arena.slot(plan_.answers.memory, a);
  std::vector<runtime::ConstBytes> ranges;
  for (const Shard shard : answers_[a].shards) {
    records(shard).add_ranges(image, ranges);
    image += records(shard).region_bytes();
  }
  send(ranges, [this, a] {
    if (--answers_[a].users == 0) serve_loans();
  });
}

}  // namespace ranvier::actors
