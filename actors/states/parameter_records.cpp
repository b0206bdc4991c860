#include "actors/states/parameter_records.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using offload::Tier;
using offload::Tiers;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;

namespace {

constexpr std::size_t max_answers = 2;                         // buffers for lending; each may serve several ranks
constexpr std::size_t values_elements = std::size_t{1} << 18;  // elements per call of a source

offload::BucketLayout layout_of(const UnitState& unit, const UnitView& part) {
  return unit.cut.layout(part.range, {runtime::size_of(part.dtype)});
}

}  // namespace

ParameterRecords::Plan ParameterRecords::plan(PlanContext& planner, const Options& options) {
  Plan plan;
  if (!planner.tiers.parameters_leave()) return plan;
  const UnitStates& states = *planner.share.states;
  // By unit; 0 if not in files.
  std::vector<std::size_t> bytes, secondary_bytes;
  for (const UnitState& unit : states.all()) {
    const auto reserve = [&](const std::string& name, const UnitView* part, std::vector<std::size_t>& in_files) {
      const std::size_t whole = part == nullptr || unit.on_device() ? 0 : layout_of(unit, *part).region_bytes();
      in_files.push_back(unit.tier == TierKind::nvme ? whole : 0);
      if (part == nullptr || unit.on_device()) return offload::TierRegion();
      return planner.regions.reserve(unit.tier, MemoryKind::parameters, unit.spec->name + name, whole,
                                     planner.memory);
    };
    plan.parameters.push_back(reserve(" parameters", &unit.parameters, bytes));
    plan.secondary.push_back(
        reserve(" parameters for backward passes", unit.secondary ? &*unit.secondary : nullptr, secondary_bytes));
  }
  plan.values = planner.memory.add({MemoryKind::workspace, MemorySpace::pinned, "weights on their way to the tier",
                                    values_elements * sizeof(float), 1});
  std::size_t max_bytes = 0, answer_bytes = 0;
  for (const auto& of_units : {bytes, secondary_bytes}) {
    for (const std::size_t of_unit : of_units) max_bytes = std::max(max_bytes, of_unit);
  }
  if (max_bytes == 0) return plan;
  plan.reads_ahead = options.prefetch > 0;
  plan.buffers =
      SlotPool::plan(planner.memory, {MemoryKind::parameters, MemorySpace::pinned, "parameters read ahead",
                                      max_bytes, 1 + static_cast<std::size_t>(std::max(options.prefetch, 0))});
  if (!options.lends) return plan;
  using Kind = models::Stage::PassStep::Kind;
  for (const Kind step : {Kind::forward, Kind::backward_input}) {
    for (const auto& units : planner.share.stage->units_of_parts(step)) {
      std::size_t of_step = 0;
      for (const std::size_t unit : units) {
        const bool secondary = step == Kind::backward_input && secondary_bytes[unit] > 0;
        of_step += (secondary ? secondary_bytes : bytes)[unit];
      }
      answer_bytes = std::max(answer_bytes, of_step);
    }
  }
  plan.answers = SlotPool::plan(planner.memory, {MemoryKind::messages, MemorySpace::pinned,
                                                 "parameters that others ask for", answer_bytes, max_answers});
  return plan;
}

ParameterRecords::ParameterRecords(const RankContext& context, const ModelShare& share, const Plan& plan)
    : context_(&context),
      states_(share.states.get()),
      plan_(plan),
      buffers_(context.arena, plan.buffers),
      answers_(plan.answers.slots) {
  for (const UnitState& unit : states_->all()) {
    layouts_.push_back(layout_of(unit, unit.parameters));
    secondary_layouts_.push_back(layout_of(unit, unit.secondary ? *unit.secondary : unit.parameters));
  }
}

const UnitView& ParameterRecords::part(Piece piece) const {
  const UnitState& unit = states_->all()[piece.unit];
  return piece.secondary ? *unit.secondary : unit.parameters;
}

offload::TierRegion ParameterRecords::region(Piece piece) const {
  return (piece.secondary ? plan_.secondary : plan_.parameters).at(piece.unit);
}

const offload::BucketLayout& ParameterRecords::layout(Piece piece) const {
  return (piece.secondary ? secondary_layouts_ : layouts_).at(piece.unit);
}

template <typename F>
void ParameterRecords::for_runs(Piece piece, F&& f) const {
  const BucketPartition& cut = states_->all()[piece.unit].cut;
  const UnitView& part = this->part(piece);
  for (std::size_t bucket = 0; bucket < cut.buckets(); ++bucket) {
    std::size_t offset = layout(piece).record_offset(bucket);
    for (const Range& run : cut.runs(part.range, bucket)) {
      f(run.begin, run.count, offset);
      offset += run.count * runtime::size_of(part.dtype);
    }
  }
}

void ParameterRecords::add_ranges(Piece piece, const std::byte* image,
                                  std::vector<runtime::ConstBytes>& ranges) const {
  const BucketPartition& cut = states_->all()[piece.unit].cut;
  const UnitView& part = this->part(piece);
  const std::size_t element = runtime::size_of(part.dtype);
  for (std::size_t p = 0; p < cut.pieces(part.range); ++p) {
    for (std::size_t bucket = 0; bucket < cut.buckets(); ++bucket) {
      const std::size_t bytes = cut.slice(bucket).count * element;
      ranges.emplace_back(image + layout(piece).record_offset(bucket) + p * bytes, bytes);
    }
  }
}

void ParameterRecords::load(Source weights, runtime::Handler done) {
  weights_ = std::move(weights);
  loaded_ = std::move(done);
  load_next(0);
}

void ParameterRecords::load_next(std::size_t unit) {
  if (unit == states_->all().size()) {
    weights_ = nullptr;
    return context_->loop.post(std::exchange(loaded_, nullptr));
  }
  if (states_->all()[unit].on_device()) return load_next(unit + 1);
  const Piece piece{unit, false};
  const UnitView& to = part(piece);
  const models::UnitSpec& spec = *states_->all()[unit].spec;
  const std::span<std::byte> image =
      in_files(unit) ? std::span(context_->arena.slot(plan_.buffers.memory), layout(piece).region_bytes())
                     : context_->tiers.memory(region(piece));
  auto* values = context_->arena.slot_as<float>(*plan_.values);
  runtime::fill_zero(context_->compute, image.data(), image.size());
  for_runs(piece, [&](std::size_t first, std::size_t elements, std::size_t offset) {
    const std::size_t end = std::min(first + elements, spec.elements());
    for (std::size_t begin = first; begin < end; begin += values_elements) {
      const std::size_t count = std::min(values_elements, end - begin);
      weights_(spec, begin, {values, count});
      runtime::cast(context_->compute, image.data() + offset + (begin - first) * runtime::size_of(to.dtype),
                    to.dtype, values, runtime::DType::f32, count);
      context_->compute.synchronize();  // only before training, when blocking is harmless
    }
  });
  context_->compute.synchronize();
  if (!in_files(unit)) return context_->loop.post([this, unit] { load_next(unit + 1); });
  context_->tiers.store(region(piece), 0, image, [this, unit] { load_next(unit + 1); });
}

void ParameterRecords::store(std::size_t unit, std::size_t bucket, std::byte* record, runtime::Handler done) {
  const Piece piece{unit, false};
  const UnitView& part = this->part(piece);
  const std::size_t bytes = states_->all()[unit].cut.elements(part.range, bucket) * runtime::size_of(part.dtype);
  context_->tiers.store(region(piece), layout(piece).record_offset(bucket), std::span(record, bytes),
                        std::move(done));
}

void ParameterRecords::store_from(Piece piece, std::byte* data, std::size_t first, runtime::Handler done) {
  transfer(IoKind::write, piece, data, first, std::move(done));
}

ParameterRecords::Run ParameterRecords::run_from(Piece piece, std::size_t element) const {
  std::optional<Run> found;
  for_runs(piece, [&](std::size_t first, std::size_t elements, std::size_t offset) {
    if (element < first || element >= first + elements) return;
    found = Run{offset + (element - first) * runtime::size_of(part(piece).dtype), first + elements - element};
  });
  expect(found.has_value(), "element {} of {} is not this rank's", element, states_->all()[piece.unit].spec->name);
  return *found;
}

void ParameterRecords::read(std::size_t unit, std::size_t begin, std::span<std::byte> values,
                            std::span<std::byte> blocks, runtime::Handler done) {
  const Piece piece{unit, false};
  const runtime::WorkName work{name(), "a copy of", states_->all()[unit].spec->name};
  if (values.empty()) return context_->loop.after_work(context_->compute, work, std::move(done));
  const std::size_t element = runtime::size_of(part(piece).dtype);
  const Run run = run_from(piece, begin);
  const std::size_t bytes = std::min(values.size(), run.elements * element);
  const auto go_on = [=, this, done = std::move(done)] {
    read(unit, begin + bytes / element, values.subspan(bytes), blocks, done);
  };
  if (!in_files(unit)) {
    runtime::copy(context_->compute, values.data(), context_->tiers.memory(region(piece)).data() + run.offset,
                  bytes);
    return go_on();
  }
  const std::size_t first = run.offset / Tier::block_bytes * Tier::block_bytes;
  const std::span<std::byte> whole = blocks.first(Tier::whole_blocks(run.offset + bytes) - first);
  context_->tiers.fetch_to_host(region(piece), first, whole, [=, this] {
    runtime::copy(context_->compute, values.data(), whole.data() + (run.offset - first), bytes);
    context_->loop.after_work(context_->compute, work, go_on);
  });
}

StatePlace ParameterRecords::place(std::size_t unit, std::size_t begin) const {
  const Piece piece{unit, false};
  const std::size_t offset = run_from(piece, begin).offset;
  if (in_files(unit)) return {.region = region(piece), .offset = offset};
  return {.memory = context_->tiers.memory(region(piece)).data() + offset};
}

/// Moves records between the region and the device.
void ParameterRecords::transfer(IoKind kind, Piece piece, std::byte* data, std::size_t first,
                                runtime::Handler done) {
  const BucketPartition& cut = states_->all()[piece.unit].cut;
  const UnitView& part = this->part(piece);
  const std::size_t element = runtime::size_of(part.dtype);
  if (cut.buckets() == 0) return context_->loop.post(std::move(done));
  const auto all_done = runtime::last_of(cut.buckets(), std::move(done));
  for (std::size_t bucket = 0; bucket < cut.buckets(); ++bucket) {
    Tiers::StridedLayout runs;
    for (const Range& run : cut.runs(part.range, bucket)) {
      runs.emplace_back(data + (run.begin - first) * element, run.count * element);
    }
    context_->tiers.move(kind, region(piece), layout(piece).record_offset(bucket), std::move(runs), all_done);
  }
}

void ParameterRecords::announce(Piece piece) {
  if (in_files(piece.unit)) readings_.push_back(std::make_shared<Reading>(Reading{.piece = piece}));
}

void ParameterRecords::fetch(Piece piece, std::byte* whole, runtime::Handler done) {
  if (!in_files(piece.unit)) return transfer(IoKind::read, piece, whole, 0, std::move(done));
  const auto next = std::find_if(readings_.begin(), readings_.end(),
                                 [](const auto& reading) { return reading->whole == nullptr; });
  expect(next != readings_.end() && (*next)->piece == piece, "unit {} is fetched where another one was announced",
         piece.unit);
  const auto reading = *next;
  reading->whole = whole;
  reading->done = std::move(done);
  if (reading->here) return copy_out(reading);
  if (reading->buffer.data() == nullptr) read([](Piece) { return false; });
}

void ParameterRecords::read_ahead(const std::function<bool(Piece)>& may_be_read) {
  if (plan_.reads_ahead) read(may_be_read);
}

void ParameterRecords::read(const std::function<bool(Piece)>& may) {
  for (const auto& reading : readings_) {
    if (reading->buffer.data() != nullptr) continue;
    if (!buffers_.has_free() || (reading->whole == nullptr && !may(reading->piece))) return;
    reading->buffer = buffers_.take();
    context_->tiers.fetch_to_host(region(reading->piece), 0,
                                  {reading->buffer.data(), layout(reading->piece).region_bytes()}, [this, reading] {
                                    reading->here = true;
                                    if (reading->whole != nullptr) copy_out(reading);
                                  });
  }
}

void ParameterRecords::copy_out(const std::shared_ptr<Reading>& reading) {
  const std::byte* image = reading->buffer.data();
  const std::size_t element = runtime::size_of(part(reading->piece).dtype);
  for_runs(reading->piece, [&](std::size_t begin, std::size_t count, std::size_t offset) {
    runtime::copy(context_->gather, reading->whole + begin * element, image + offset, count * element);
  });
  const runtime::WorkName work{name(), "the copy to the device of", states_->all()[reading->piece.unit].spec->name};
  context_->loop.after_work(context_->gather, work, [this, reading] {
    reading->buffer.release();
    std::erase(readings_, reading);
    read([](Piece) { return false; });
    reading->done();
  });
}

void ParameterRecords::lend(std::vector<Piece> pieces, std::uint64_t version, Send send) {
  if (in_files(pieces.front().unit)) {
    Loan loan{std::move(pieces), version, std::move(send)};
    if (!loans_.empty() || !lend_now(loan)) loans_.push_back(std::move(loan));
    return;
  }
  std::vector<runtime::ConstBytes> ranges;
  for (const Piece piece : pieces) add_ranges(piece, context_->tiers.memory(region(piece)).data(), ranges);
  send(ranges, [] {});
}

bool ParameterRecords::lend_now(const Loan& loan) {
  // Ranks request the same shards at about the same time; one read serves all of them.
  for (std::size_t a = 0; a < answers_.size(); ++a) {
    Answer& answer = answers_[a];
    if (answer.pieces != loan.pieces || answer.version != loan.version) continue;
    ++answer.users;
    if (answer.here) {
      send_from(a, loan.send);
    } else {
      answer.waiting.push_back(loan.send);
    }
    return true;
  }
  const auto free =
      std::find_if(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.users == 0; });
  if (free == answers_.end()) return false;
  const auto a = static_cast<std::size_t>(free - answers_.begin());
  *free = {.pieces = loan.pieces, .version = loan.version, .here = false, .users = 1, .waiting = {loan.send}};
  std::byte* image = context_->arena.slot(plan_.answers.memory, a);
  const auto one_here = runtime::last_of(loan.pieces.size(), [this, a] {
    answers_[a].here = true;
    for (const Send& send : std::exchange(answers_[a].waiting, {})) send_from(a, send);
  });
  for (const Piece piece : loan.pieces) {
    const std::size_t bytes = layout(piece).region_bytes();
    context_->tiers.fetch_to_host(region(piece), 0, {image, bytes}, one_here);
    image += bytes;
  }
  expect(image <= context_->arena.slot(plan_.answers.memory, a) + plan_.answers.bytes,
         "an answer of {} units is too long", loan.pieces.size());
  return true;
}

void ParameterRecords::send_from(std::size_t a, const Send& send) {
  const std::byte* image = context_->arena.slot(plan_.answers.memory, a);
  std::vector<runtime::ConstBytes> ranges;
  for (const Piece piece : answers_[a].pieces) {
    add_ranges(piece, image, ranges);
    image += layout(piece).region_bytes();
  }
  send(ranges, [this, a] {
    if (--answers_[a].users == 0) lend_waiting();
  });
}

void ParameterRecords::lend_waiting() {
  while (!loans_.empty() && lend_now(loans_.front())) loans_.pop_front();
}

}  // namespace ranvier::actors
