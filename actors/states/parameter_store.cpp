#include "actors/states/parameter_store.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::actors {

using collectives::Range;
using collectives::Scope;
using collectives::TeamKind;
using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Tag;
using runtime::Trace;

namespace {

constexpr std::size_t answers_at_a_time = 4;  // whole or in pieces, by way of pinned memory; others wait

/// Whose pieces a rank needs for such passes, and by which scope those are cut.
struct Owners {
  TeamKind team = TeamKind::column;
  Scope scope = Scope::global;
};
Owners owners_of(const collectives::Sharding& sharding, bool backward) {
  const Scope scope = backward && sharding.secondary_parameters ? Scope::group : sharding.parameters;
  return {scope == Scope::global ? TeamKind::column : TeamKind::group, scope};
}

bool pulls_pieces(const ModelShare& share, const ParameterStore::Options& options) {
  return share.states->gathers_parameters() && options.pulls && !share.flow.gather_forward.empty();
}

}  // namespace

/// Another row that may ask for pieces. The transport may hold its receive when the store is gone.
struct ParameterStore::Peer {
  int row = 0;
  Request request;
};

SlotClasses ParameterStore::classes_of(const models::Stage& stage, const std::vector<std::size_t>& elements,
                                       const Options& options) {
  std::vector<std::vector<std::size_t>> layouts;
  for (const std::size_t of_unit : elements) layouts.push_back({of_unit});
  const auto of_steps = [&](models::Stage::Step::Kind kind) {
    return slot_classes(layouts, stage.units_of_parts(kind), options.prefetch, options.reuse);
  };
  SlotClasses classes = of_steps(models::Stage::Step::Kind::forward);
  const SlotClasses backward = of_steps(models::Stage::Step::Kind::backward_input);
  for (std::size_t kind = 0; kind < classes.slots.size(); ++kind) {
    classes.slots[kind] = std::max(classes.slots[kind], backward.slots[kind]);
  }
  return classes;
}

ParameterStore::Plan ParameterStore::plan(Planner& planner, const Options& options) {
  const ModelShare& share = planner.share;
  Plan plan{.options = options};
  if (!share.states->gathers_parameters()) return plan;
  std::vector<std::size_t> elements;  // by unit
  for (const UnitState& unit : share.states->all()) elements.push_back(unit.elements);
  plan.classes = classes_of(*share.stage, elements, options);
  const runtime::DType dtype = share.states->precision().compute;
  for (std::size_t kind = 0; kind < plan.classes.slots.size(); ++kind) {
    const std::size_t of_unit = elements[plan.classes.first_unit[kind]];
    plan.places.push_back(planner.memory.add({MemoryKind::workspace, MemorySpace::device,
                                              fmt::format("gathered units of {} elements", of_unit),
                                              of_unit * runtime::size_of(dtype), plan.classes.slots[kind]}));
  }
  std::vector<std::vector<HopPipeline::PartShape>> bundles;
  using Kind = models::Stage::Step::Kind;
  for (const Kind kind : {Kind::forward, Kind::backward_input}) {
    for (const auto& units : share.stage->units_of_parts(kind)) {
      auto& bundle = bundles.emplace_back();
      for (const std::size_t unit : units) bundle.push_back({elements[unit]});
    }
  }
  const auto hops = [&](const std::vector<collectives::Hop>& of_passes, int family) {
    return HopPipeline::plan(planner, {.hops = of_passes, .dtype = dtype, .family = family, .name = "parameters"},
                             bundles);
  };
  plan.forward = hops(share.flow.gather_forward, 0);
  plan.backward = hops(share.flow.gather_backward, 1);
  return plan;
}

std::vector<runtime::StagedMessages> ParameterStore::staged_messages(const ModelShare& share, const Plan& plan) {
  using Direction = runtime::StagedMessages::Direction;
  if (!pulls_pieces(share, plan.options)) return {};
  const models::Stage& stage = *share.stage;
  const UnitStates& states = *share.states;
  const ColumnOptions& column = *share.column;
  using Kind = models::Stage::Step::Kind;
  std::vector<runtime::StagedMessages> messages;
  std::size_t longest = 0;
  const bool apart = column.sharding.secondary_parameters;
  for (const bool backward : {false, true}) {
    if (backward && !apart) break;
    const Owners owners = owners_of(column.sharding, backward);
    const auto pieces = static_cast<std::size_t>(column.layout.pieces(owners.scope));
    // By class of the first unit of a message, which has all that the step still needs.
    std::vector<std::size_t> bytes(plan.classes.slots.size(), 0);
    auto steps = stage.units_of_parts(Kind::forward);  // in backward passes, too, where they are computed again
    const auto back = stage.units_of_parts(Kind::backward_input);
    if (backward || !apart) steps.insert(steps.end(), back.begin(), back.end());
    for (const auto& units : steps) {
      std::size_t behind = 0;
      for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        behind += states.all()[*unit].elements / pieces * runtime::size_of(states.precision().compute);
        std::size_t& of_class = bytes[plan.classes.of_unit[*unit]];
        of_class = std::max(of_class, behind);
      }
    }
    const SlotSchedule places(plan.classes);
    const std::size_t others = column.layout.team(owners.team).members.size() - 1;
    for (std::size_t slot = 0; slot < places.slots(); ++slot) {
      const std::size_t of_slot = bytes[places.class_of_slot(slot)];
      if (of_slot == 0) continue;
      longest = std::max(longest, of_slot);
      messages.push_back({Channel::piece, Direction::receive, static_cast<std::uint32_t>(slot), of_slot, others});
    }
  }
  messages.push_back({Channel::piece, Direction::send, std::nullopt,
                      std::min(longest, runtime::StagedTransport::usual_piece_bytes), answers_at_a_time});
  return messages;
}

ParameterStore::ParameterStore(const RankContext& context, const ModelShare& share, const Plan& plan,
                               ParameterRecords* records)
    : context_(&context),
      records_(records),
      stage_(share.stage.get()),
      states_(share.states.get()),
      column_(share.column.get()),
      flow_(&share.flow),
      options_(plan.options),
      gathers_(states_->gathers_parameters()),
      pulls_(pulls_pieces(share, options_)),
      schedule_(plan.classes),
      forward_(context, *column_, plan.forward),
      backward_(context, *column_, plan.backward),
      places_(schedule_.slots()),
      version_of_(states_->all().size(), 0),
      secondary_of_(states_->all().size(), 0),
      secondary_begun_of_(states_->all().size(), 0) {
  std::vector<std::size_t> used(plan.places.size(), 0);
  for (std::size_t s = 0; s < places_.size(); ++s) {
    const std::size_t kind = schedule_.class_of_slot(s);
    places_[s].data = context.arena.slot(plan.places[kind], used[kind]++);
  }
  if (gathers_) return;
  whole_.resize(stage_->layers());
  for (const models::Stage::UnitUse& use : stage_->uses()) {
    whole_[use.layer].push_back(states_->all()[use.unit].parameters.data);
  }
}

ParameterStore::~ParameterStore() { *alive_ = false; }

void ParameterStore::start() {
  if (!pulls_) return;
  for (int row = 0; row < column_->layout.ranks(); ++row) {
    const auto& forward = owners(false).members;
    const auto& backward = owners(true).members;
    const bool asks = std::find(forward.begin(), forward.end(), row) != forward.end() ||
                      std::find(backward.begin(), backward.end(), row) != backward.end();
    if (row == column_->layout.rank() || !asks) continue;
    listen(peers_.emplace_back(std::make_shared<Peer>(Peer{row, {}})));
  }
}

const UnitPart& ParameterStore::source(std::size_t unit, bool backward) const {
  const UnitState& state = states_->all()[unit];
  return backward && state.secondary ? *state.secondary : state.parameters;
}

Range ParameterStore::range(std::size_t unit, bool backward, int row) const {
  return column_->layout.range(owners_of(column_->sharding, backward).scope, states_->all()[unit].elements, row);
}

const collectives::Team& ParameterStore::owners(bool backward) const {
  return column_->layout.team(owners_of(column_->sharding, backward).team);
}

ParameterRecords::Piece ParameterStore::piece(std::size_t unit, bool backward) const {
  return {unit, backward && states_->all()[unit].secondary.has_value()};
}

bool ParameterStore::has_piece(std::size_t unit, bool backward, std::uint64_t version) const {
  const bool secondary = backward && states_->all()[unit].secondary.has_value();
  return version_of_[unit] == version && (!secondary || secondary_of_[unit] == version + 1);
}

std::uint64_t ParameterStore::announce(const Announced& pass) {
  const std::uint64_t first = first_use_ + uses_.size();
  for (const models::Stage::Step& step : pass.steps) {
    if (!uses(step)) continue;
    const std::uint64_t number = first_use_ + uses_.size();
    Use& use = uses_.emplace_back(Use{.step = step});
    if (!gathers_) continue;
    auto gather = std::make_shared<Gather>();
    gather->use = number;
    gather->backward = pass.backward;
    use.pointers.resize(stage_->uses_of(step.layer).size());
    for (const std::size_t unit_use : stage_->uses_of(step)) {
      const auto [layer, index, unit] = stage_->uses()[unit_use];
      const SlotSchedule::Place place = schedule_.next(unit, number, options_.reuse);
      use.pointers[index] = places_[place.slot].data;
      if (!place.fill) continue;
      gather->fills.push_back({unit, place.slot});
      if (records_ != nullptr) records_->announce(piece(unit, pass.backward));
      if (place.after && (!gather->after || *gather->after < *place.after)) gather->after = place.after;
    }
    use.here = gather->fills.empty();
    if (!use.here) gathers_to_start_.push_back(std::move(gather));
  }
  start_gathers();
  return first;
}

bool ParameterStore::ready(std::uint64_t number) const {
  const Use& use = use_of(number);
  if (gathers_) return use.here;
  const auto& units = stage_->uses_of(use.step);
  return std::all_of(units.begin(), units.end(),
                     [this](std::size_t unit_use) { return up_to_date(stage_->uses()[unit_use].unit); });
}

void ParameterStore::when_ready(std::uint64_t use, runtime::Handler handler) {
  expect(!waiting_, "a pass waits for one step's parameters at a time");
  waiting_use_ = use;
  waiting_ = std::move(handler);
  check_waiting();
}

void ParameterStore::check_waiting() {
  if (waiting_ && ready(waiting_use_)) context_->loop.post(std::exchange(waiting_, nullptr));
}

void ParameterStore::provide(std::uint64_t use, models::StepArrays& arrays) {
  arrays.parameters = gathers_ ? use_of(use).pointers : whole_[use_of(use).step.layer];
}

bool ParameterStore::queued(std::uint64_t use) {
  if (!gathers_) forget(use);
  return gathers_;
}

void ParameterStore::done(std::uint64_t use) {
  forget(use);
  start_gathers();
}

void ParameterStore::forget(std::uint64_t use) {
  expect(use == first_use_, "parameters of use {} are given back before those of use {}", use, first_use_);
  uses_.pop_front();
  ++first_use_;
}

bool ParameterStore::can_start(const Gather& gather) const {
  if (gather.after && *gather.after >= first_use_) return false;
  return std::all_of(gather.fills.begin(), gather.fills.end(), [&](const Fill& fill) {
    return places_[fill.place].copies == 0 && has_piece(fill.unit, gather.backward, version_);
  });
}

void ParameterStore::start_gathers() {
  while (!gathers_to_start_.empty() && can_start(*gathers_to_start_.front())) {
    const auto gather = gathers_to_start_.front();
    gathers_to_start_.pop_front();
    gathers_under_way_.push_back(gather);
    gather->began = context_->trace.now();
    gather->since = context_->loop.now();
    gather->missing = 1;  // what this rank brings itself
    if (pulls_) {
      pull(gather);
    } else {
      to_submit_.push_back(gather);
    }
    bring_own(gather);
  }
  read_ahead();
}

void ParameterStore::read_ahead() {
  if (records_ == nullptr) return;
  records_->read_ahead(
      [this](ParameterRecords::Piece piece) { return has_piece(piece.unit, piece.secondary, version_); });
}

void ParameterStore::bring_own(const std::shared_ptr<Gather>& gather) {
  gather->own_missing = gather->fills.size();
  const auto brought = [this, gather] {
    gather->own_missing = 0;
    if (pulls_) return arrived(gather);
    submit_brought();
  };
  if (records_ != nullptr) {
    for (const Fill& fill : gather->fills) {
      records_->fetch(piece(fill.unit, gather->backward), places_[fill.place].data, [this, gather, brought] {
        if (--gather->own_missing == 0) brought();
        read_ahead();
      });
    }
    return;
  }
  for (const Fill& fill : gather->fills) {
    const Range own = range(fill.unit, gather->backward, column_->layout.rank());
    const std::size_t element = runtime::size_of(states_->precision().compute);
    runtime::copy(context_->gather, places_[fill.place].data + own.begin * element,
                  source(fill.unit, gather->backward).at(own.begin), own.count * element);
  }
  after_copies(brought);
}

/// Collectives start in the order of the needs, the same on all ranks, whatever a tier brings first.
void ParameterStore::submit_brought() {
  while (!to_submit_.empty() && to_submit_.front()->own_missing == 0) {
    const auto gather = to_submit_.front();
    to_submit_.pop_front();
    std::vector<HopPipeline::Part> parts;
    for (const Fill& fill : gather->fills) {
      parts.push_back({places_[fill.place].data, 0, states_->all()[fill.unit].elements});
    }
    (gather->backward ? backward_ : forward_).submit(std::move(parts), describe(*gather), [this, gather] {
      arrived(gather);
    });
  }
}

void ParameterStore::arrived(const std::shared_ptr<Gather>& gather) {
  if (--gather->missing == 0) filled(gather);
}

void ParameterStore::pull(const std::shared_ptr<Gather>& gather) {
  const std::size_t element = runtime::size_of(states_->precision().compute);
  for (const int row : owners(gather->backward).members) {
    if (row == column_->layout.rank()) continue;
    const int owner = column_->ranks[static_cast<std::size_t>(row)];
    for (std::size_t begin = 0; begin < gather->fills.size(); begin += Request::most_units) {
      const std::size_t count = std::min(Request::most_units, gather->fills.size() - begin);
      auto request = std::make_shared<Request>();
      request->version = version_;
      request->answer = static_cast<std::uint32_t>(gather->fills[begin].place);
      request->backward = gather->backward ? 1 : 0;
      request->count = static_cast<std::uint8_t>(count);
      std::vector<runtime::Bytes> ranges;
      for (std::size_t f = 0; f < count; ++f) {
        const Fill& fill = gather->fills[begin + f];
        request->units[f] = static_cast<std::uint16_t>(fill.unit);
        const Range theirs = range(fill.unit, gather->backward, row);
        ranges.emplace_back(places_[fill.place].data + theirs.begin * element, theirs.count * element);
      }
      ++gather->missing;
      gather->asked.push_back(owner);
      context_->transport.receive(owner, Tag{Channel::piece, request->answer}, ranges, [this, gather, owner] {
        gather->asked.erase(std::find(gather->asked.begin(), gather->asked.end(), owner));
        arrived(gather);
      });
      context_->transport.send(owner, Tag{Channel::pull, 0}, std::as_bytes(std::span(request.get(), 1)),
                               [request] {});
    }
  }
}

void ParameterStore::after_copies(runtime::Handler next) {
  context_->loop.after_work(context_->gather, {"parameters", "the copies of this rank's own pieces"},
                            std::move(next));
}

void ParameterStore::filled(const std::shared_ptr<Gather>& gather) {
  context_->trace.add(SpanKind::gather, Trace::Lane::communicate, gather->began, context_->trace.now(),
                      static_cast<int>(states_->all()[gather->fills.front().unit].global_index));
  std::erase(gathers_under_way_, gather);
  use_of(gather->use).here = true;
  for (const Fill& fill : gather->fills) {
    if (!gather->backward && states_->all()[fill.unit].secondary) keep_secondary(fill.unit, fill.place);
  }
  check_waiting();
}

void ParameterStore::keep_secondary(std::size_t unit, std::size_t place) {
  const std::uint64_t version = version_ + 1;
  if (secondary_begun_of_[unit] == version) return;  // others may be reading it
  secondary_begun_of_[unit] = version;
  const UnitPart& part = *states_->all()[unit].secondary;
  ++places_[place].copies;
  const auto kept = [this, unit, place, version] {
    --places_[place].copies;
    secondary_of_[unit] = version;
    start_gathers();
    answer_waiting();
  };
  if (records_ != nullptr) return records_->store_from({unit, true}, places_[place].data, 0, kept);
  const std::byte* from = places_[place].data + part.range.begin * runtime::size_of(part.dtype);
  runtime::copy(context_->gather, part.data, from, part.bytes());
  after_copies(kept);
}

void ParameterStore::begin_refresh() {
  expect(gathers_to_start_.empty() && gathers_under_way_.empty() && !waiting_,
         "parameters change while a pass still needs them");
  ++version_;
  schedule_.forget();
}

void ParameterStore::refreshed(std::size_t unit) {
  ++version_of_[unit];
  start_gathers();
  answer_waiting();
  check_waiting();
}

void ParameterStore::listen(const std::shared_ptr<Peer>& peer) {
  const int rank = column_->ranks[static_cast<std::size_t>(peer->row)];
  context_->transport.receive(rank, Tag{Channel::pull, 0}, std::as_writable_bytes(std::span(&peer->request, 1)),
                              [this, peer, alive = alive_] {
                                if (!*alive) return;
                                const Request request = peer->request;
                                listen(peer);
                                asked(peer->row, request);
                              });
}

void ParameterStore::asked(int row, const Request& request) {
  if (can_answer(request)) return answer(row, request);
  deferred_.emplace_back(row, request);
}

bool ParameterStore::can_answer(const Request& request) const {
  // Who asks may be a batch ahead, where this rank has only refreshed the units so far.
  return std::all_of(request.units, request.units + request.count,
                     [&](std::uint16_t unit) { return has_piece(unit, request.backward != 0, request.version); });
}

void ParameterStore::answer(int row, const Request& request) {
  const int rank = column_->ranks[static_cast<std::size_t>(row)];
  const Tag tag{Channel::piece, request.answer};
  if (records_ != nullptr) {
    std::vector<ParameterRecords::Piece> pieces;
    for (std::size_t u = 0; u < request.count; ++u)
      pieces.push_back(piece(request.units[u], request.backward != 0));
    return records_->lend(std::move(pieces), request.version,
                          [this, rank, tag](std::span<const runtime::ConstBytes> ranges, runtime::Handler sent) {
                            context_->transport.send(rank, tag, ranges, std::move(sent));
                          });
  }
  std::vector<runtime::ConstBytes> ranges;
  for (std::size_t u = 0; u < request.count; ++u) {
    const std::size_t unit = request.units[u];
    const bool backward = request.backward != 0;
    const Range own = range(unit, backward, column_->layout.rank());
    const UnitPart& part = source(unit, backward);
    ranges.emplace_back(part.at(own.begin), own.count * runtime::size_of(part.dtype));
  }
  context_->transport.send(rank, tag, ranges, [] {});
}

void ParameterStore::answer_waiting() {
  for (std::size_t d = 0; d < deferred_.size();) {
    if (!can_answer(deferred_[d].second)) {
      ++d;
      continue;
    }
    const auto [row, request] = deferred_[d];
    deferred_.erase(deferred_.begin() + static_cast<std::ptrdiff_t>(d));
    answer(row, request);
  }
}

std::string ParameterStore::describe(const Gather& gather) const {
  std::string units;
  for (const Fill& fill : gather.fills) {
    if (!units.empty()) units += ", ";
    units += states_->all()[fill.unit].spec->name;
  }
  return fmt::format("the gather of the parameters of {} for a {} pass", units,
                     gather.backward ? "backward" : "forward");
}

std::vector<Wait> ParameterStore::waits() const {
  std::vector<Wait> all;
  for (const auto& gather : gathers_under_way_) {
    for (const int rank : gather->asked) all.push_back({describe(*gather), rank, gather->since});
    // Collectives begin when this rank's own pieces are there, and the order of gathers has come to it.
    const bool submitted = std::find(to_submit_.begin(), to_submit_.end(), gather) == to_submit_.end();
    if (!pulls_ && submitted) all.push_back({describe(*gather), std::nullopt, gather->since});
  }
  return all;
}

std::vector<int> ParameterStore::peers() const {
  std::vector<int> ranks;
  for (const bool backward : {false, true}) {
    if (!gathers_ || (backward ? flow_->gather_backward : flow_->gather_forward).empty()) continue;
    for (const int row : owners(backward).members) {
      const int rank = column_->ranks[static_cast<std::size_t>(row)];
      const bool known = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      if (row != column_->layout.rank() && !known) ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace ranvier::actors
