#include "actors/states/parameter_store.hpp"

#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"
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

bool pulls_pieces(const UnitStates& states, const collectives::ShardFlow& flow,
                  const ParameterStore::Options& options) {
  return states.gathers_parameters() && options.pulls && !flow.gather_forward.empty();
}

}  // namespace

/// Another row that may ask for pieces. The transport may hold its receive when the store is gone.
struct ParameterStore::Peer {
  int row = 0;
  Request request;
};

ParameterStore::Memory ParameterStore::plan(const models::Stage& stage, const UnitStates& states,
                                            const ColumnOptions&, const collectives::ShardFlow& flow,
                                            const Options& options, Planner& planner) {
  Memory memory;
  if (!states.gathers_parameters()) return memory;
  std::vector<std::vector<std::size_t>> sizes;
  for (const UnitState& unit : states.all()) sizes.push_back({unit.elements});
  using Kind = models::Stage::Step::Kind;
  auto steps = stage.units_of_parts(Kind::forward);
  memory.classes = slot_classes(sizes, steps, options.prefetch, options.reuse);
  const auto back = stage.units_of_parts(Kind::backward_input);
  const SlotClasses classes_back = slot_classes(sizes, back, options.prefetch, options.reuse);
  for (std::size_t kind = 0; kind < memory.classes.slots.size(); ++kind) {
    memory.classes.slots[kind] = std::max(memory.classes.slots[kind], classes_back.slots[kind]);
  }
  steps.insert(steps.end(), back.begin(), back.end());
  for (std::size_t kind = 0; kind < memory.classes.slots.size(); ++kind) {
    const std::size_t elements = states.all()[memory.classes.first_unit[kind]].elements;
    memory.places.push_back(planner.memory.add({MemoryKind::workspace, MemorySpace::device,
                                      fmt::format("gathered units of {} elements", elements),
                                      elements * runtime::size_of(states.precision().compute),
                                      memory.classes.slots[kind]}));
  }
  std::vector<std::vector<HopPipeline::PartShape>> bundles;
  for (const auto& units : steps) {
    auto& bundle = bundles.emplace_back();
    for (const std::size_t unit : units) bundle.push_back({states.all()[unit].elements});
  }
  const runtime::DType dtype = states.precision().compute;
  memory.forward = HopPipeline::plan(
      planner, {.hops = flow.gather_forward, .dtype = dtype, .family = 0, .name = "parameters"}, bundles);
  memory.backward = HopPipeline::plan(
      planner, {.hops = flow.gather_backward, .dtype = dtype, .family = 1, .name = "parameters"}, bundles);
  return memory;
}

std::vector<runtime::StagedMessages> ParameterStore::staged_messages(
    const models::Stage& stage, const UnitStates& states, const ColumnOptions& column,
    const collectives::ShardFlow& flow, const Options& options, const Memory& memory) {
  using Direction = runtime::StagedMessages::Direction;
  if (!pulls_pieces(states, flow, options)) return {};
  using Kind = models::Stage::Step::Kind;
  std::vector<runtime::StagedMessages> messages;
  std::size_t longest = 0;
  const bool apart = column.sharding.secondary_parameters;
  for (const bool backward : {false, true}) {
    if (backward && !apart) break;
    const Owners owners = owners_of(column.sharding, backward);
    const auto pieces = static_cast<std::size_t>(column.layout.pieces(owners.scope));
    // By class of the first unit of a message, which has all that the step still needs.
    std::vector<std::size_t> bytes(memory.classes.slots.size(), 0);
    auto steps = stage.units_of_parts(Kind::forward);  // in backward passes, too, where they are computed again
    const auto back = stage.units_of_parts(Kind::backward_input);
    if (backward || !apart) steps.insert(steps.end(), back.begin(), back.end());
    for (const auto& units : steps) {
      std::size_t behind = 0;
      for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        behind += states.all()[*unit].elements / pieces * runtime::size_of(states.precision().compute);
        std::size_t& of_class = bytes[memory.classes.of_unit[*unit]];
        of_class = std::max(of_class, behind);
      }
    }
    const SlotSchedule places(memory.classes);
    const std::size_t others = column.layout.team(owners.team).members.size() - 1;
    for (std::size_t slot = 0; slot < places.slots(); ++slot) {
      const std::size_t of_slot = bytes[places.class_of_slot(slot)];
      if (of_slot == 0) continue;
      longest = std::max(longest, of_slot);
      messages.push_back(
          {Channel::piece, Direction::receive, static_cast<std::uint32_t>(slot), of_slot, others});
    }
  }
  messages.push_back({Channel::piece, Direction::send, std::nullopt,
                      std::min(longest, runtime::StagedTransport::usual_piece_bytes), answers_at_a_time});
  return messages;
}

ParameterStore::ParameterStore(const RankContext& context, runtime::Transport& transport, runtime::StreamView copies,
                               ParameterTier* tier, const models::Stage& stage,
                               const UnitStates& states, const ColumnOptions& column,
                               const collectives::ShardFlow& flow, Trace& trace,
                               const Options& options, const Memory& memory, const runtime::Arena& arena)
    : loop_(&context.loop),
      transport_(&transport),
      copies_(copies),
      tier_(tier),
      stage_(&stage),
      states_(&states),
      column_(&column),
      trace_(&trace),
      options_(options),
      gathers_(states.gathers_parameters()),
      pulls_(pulls_pieces(states, flow, options)),
      schedule_(memory.classes),
      forward_(context, column, memory.forward),
      backward_(context, column, memory.backward),
      slots_(schedule_.slots()),
      version_of_(states.all().size(), 0),
      secondary_of_(states.all().size(), 0),
      secondary_begun_of_(states.all().size(), 0) {
  std::vector<std::size_t> used(memory.places.size(), 0);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const std::size_t kind = schedule_.class_of_slot(s);
    slots_[s].data = arena.slot(memory.places[kind], used[kind]++);
  }
  if (gathers_) return;
  whole_.resize(stage.layers());
  for (const models::Stage::UnitUse& use : stage.uses()) {
    whole_[use.layer].push_back(states.all()[use.unit].parameters.data);
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

ParameterTier::Piece ParameterStore::piece(std::size_t unit, bool backward) const {
  return {unit, backward && states_->all()[unit].secondary.has_value()};
}

bool ParameterStore::has_piece(std::size_t unit, bool backward, std::uint64_t version) const {
  const bool secondary = backward && states_->all()[unit].secondary.has_value();
  return version_of_[unit] == version && (!secondary || secondary_of_[unit] == version + 1);
}

std::uint64_t ParameterStore::announce(const models::Stage::Pass& pass) {
  const std::uint64_t first = first_need_ + needs_.size();
  if (!gathers_) return first;
  bool backward = false;
  for (const models::Stage::Step& step : pass) {
    backward = backward || step.again || step.kind != models::Stage::Step::Kind::forward;
    if (!step.needs_parameters()) continue;
    const std::uint64_t number = first_need_ + needs_.size();
    Need& need = needs_.emplace_back();
    auto gather = std::make_shared<Gather>();
    gather->need = number;
    gather->backward = backward;
    need.pointers.resize(stage_->uses_of(step.layer).size());
    for (const std::size_t use : stage_->uses_of(step)) {
      const auto [layer, index, unit] = stage_->uses()[use];
      const SlotSchedule::Place place = schedule_.next(unit, number, options_.reuse);
      need.pointers[index] = slots_[place.slot].data;
      if (!place.fill) continue;
      gather->fills.push_back({unit, place.slot});
      if (tier_ != nullptr) tier_->announce(piece(unit, backward));
      if (place.after && (!gather->after || *gather->after < *place.after)) gather->after = place.after;
    }
    need.here = gather->fills.empty();
    if (!need.here) gathers_to_start_.push_back(std::move(gather));
  }
  start_gathers();
  return first;
}

bool ParameterStore::ready(std::uint64_t need, const models::Stage::Step& step) const {
  const auto& uses = stage_->uses_of(step);
  if (!gathers_) {
    return std::all_of(uses.begin(), uses.end(),
                       [this](std::size_t use) { return up_to_date(stage_->uses()[use].unit); });
  }
  return needs_[need - first_need_].here;
}

void ParameterStore::when_ready(std::uint64_t need, const models::Stage::Step& step, runtime::Handler handler) {
  expect(!waiting_, "a pass waits for one step's parameters at a time");
  waiting_need_ = need;
  waiting_for_ = step;
  waiting_ = std::move(handler);
  check_waiting();
}

void ParameterStore::check_waiting() {
  if (waiting_ && ready(waiting_need_, waiting_for_)) loop_->post(std::exchange(waiting_, nullptr));
}

std::span<const std::byte* const> ParameterStore::pointers(std::uint64_t need,
                                                          const models::Stage::Step& step) const {
  return gathers_ ? needs_[need - first_need_].pointers : whole_[step.layer];
}

void ParameterStore::used(std::uint64_t need) {
  expect(need == used_, "parameters of use {} are given back before those of use {}", need, used_);
  ++used_;
  needs_.pop_front();
  ++first_need_;
  start_gathers();
}

bool ParameterStore::can_start(const Gather& gather) const {
  if (gather.after && *gather.after >= used_) return false;
  return std::all_of(gather.fills.begin(), gather.fills.end(), [&](const Fill& fill) {
    return slots_[fill.slot].copies == 0 && has_piece(fill.unit, gather.backward, version_);
  });
}

void ParameterStore::start_gathers() {
  while (!gathers_to_start_.empty() && can_start(*gathers_to_start_.front())) {
    const auto gather = gathers_to_start_.front();
    gathers_to_start_.pop_front();
    gathers_under_way_.push_back(gather);
    gather->began = Trace::Clock::now();
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
  if (tier_ == nullptr) return;
  tier_->read_ahead([this](ParameterTier::Piece piece) { return has_piece(piece.unit, piece.secondary, version_); });
}

void ParameterStore::bring_own(const std::shared_ptr<Gather>& gather) {
  gather->own_missing = gather->fills.size();
  const auto brought = [this, gather] {
    gather->own_missing = 0;
    if (pulls_) return arrived(gather);
    submit_brought();
  };
  if (tier_ != nullptr) {
    for (const Fill& fill : gather->fills) {
      tier_->fetch(piece(fill.unit, gather->backward), slots_[fill.slot].data, [this, gather, brought] {
        if (--gather->own_missing == 0) brought();
        read_ahead();
      });
    }
    return;
  }
  for (const Fill& fill : gather->fills) {
    const Range own = range(fill.unit, gather->backward, column_->layout.rank());
    runtime::copy(copies_, slots_[fill.slot].data + own.begin * runtime::size_of(states_->precision().compute),
                  source(fill.unit, gather->backward).at(own.begin),
                  own.count * runtime::size_of(states_->precision().compute));
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
      parts.push_back({slots_[fill.slot].data, 0, states_->all()[fill.unit].elements});
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
      request->answer = static_cast<std::uint32_t>(gather->fills[begin].slot);
      request->backward = gather->backward ? 1 : 0;
      request->count = static_cast<std::uint8_t>(count);
      std::vector<runtime::Bytes> ranges;
      for (std::size_t f = 0; f < count; ++f) {
        const Fill& fill = gather->fills[begin + f];
        request->units[f] = static_cast<std::uint16_t>(fill.unit);
        const Range theirs = range(fill.unit, gather->backward, row);
        ranges.emplace_back(slots_[fill.slot].data + theirs.begin * element, theirs.count * element);
      }
      ++gather->missing;
      transport_->receive(owner, Tag{Channel::piece, request->answer}, ranges,
                          [this, gather] { arrived(gather); });
      transport_->send(owner, Tag{Channel::pull, 0}, std::as_bytes(std::span(request.get(), 1)), [request] {});
    }
  }
}

void ParameterStore::after_copies(runtime::Handler next) {
  loop_->after_work(copies_, {"parameters", "the copies of this rank's own pieces"}, std::move(next));
}

void ParameterStore::filled(const std::shared_ptr<Gather>& gather) {
  trace_->add(SpanKind::gather, Trace::Lane::communicate, gather->began, Trace::Clock::now(),
              static_cast<int>(states_->all()[gather->fills.front().unit].global_index));
  std::erase(gathers_under_way_, gather);
  needs_[gather->need - first_need_].here = true;
  for (const Fill& fill : gather->fills) {
    if (!gather->backward && states_->all()[fill.unit].secondary) keep_secondary(fill.unit, fill.slot);
  }
  check_waiting();
}

void ParameterStore::keep_secondary(std::size_t unit, std::size_t slot) {
  const std::uint64_t version = version_ + 1;
  if (secondary_begun_of_[unit] == version) return;  // others may be reading it
  secondary_begun_of_[unit] = version;
  const UnitPart& part = *states_->all()[unit].secondary;
  ++slots_[slot].copies;
  const auto kept = [this, unit, slot, version] {
    --slots_[slot].copies;
    secondary_of_[unit] = version;
    start_gathers();
    answer_waiting();
  };
  if (tier_ != nullptr) return tier_->store_from({unit, true}, slots_[slot].data, 0, kept);
  runtime::copy(copies_, part.data, slots_[slot].data + part.range.begin * runtime::size_of(part.dtype), part.bytes());
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
  transport_->receive(rank, Tag{Channel::pull, 0}, std::as_writable_bytes(std::span(&peer->request, 1)),
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
  if (tier_ != nullptr) {
    std::vector<ParameterTier::Piece> pieces;
    for (std::size_t u = 0; u < request.count; ++u) pieces.push_back(piece(request.units[u], request.backward != 0));
    return tier_->lend(std::move(pieces), request.version,
                       [this, rank, tag](std::span<const runtime::ConstBytes> ranges, runtime::Handler sent) {
                         transport_->send(rank, tag, ranges, std::move(sent));
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
  transport_->send(rank, tag, ranges, [] {});
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
  return fmt::format("gather of the parameters of {} for a {} pass", units, gather.backward ? "backward" : "forward");
}

std::vector<std::string> ParameterStore::running() const {
  std::vector<std::string> all;
  for (const auto& gather : gathers_under_way_) all.push_back(describe(*gather));
  return all;
}

}  // namespace ranvier::actors
