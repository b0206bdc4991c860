#include "actors/states/piece_pulls.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::Channel;
using runtime::Tag;

namespace {

constexpr std::size_t answers_at_a_time = 4;  // replies through pinned memory at a time; others wait

}  // namespace

/// A row that may request shards. The transport may keep its receive after PiecePulls is destroyed.
struct PiecePulls::Peer {
  int row = 0;
  Request request;
};

std::vector<runtime::StagedMessages> PiecePulls::staged_messages(const ModelShare& share,
                                                                 const BufferClasses& classes) {
  using Direction = runtime::StagedMessages::Direction;
  const models::StageSlices& stage = *share.stage;
  const UnitStates& states = *share.states;
  using Kind = models::Stage::PassStep::Kind;
  const UnitPieces pieces(share);
  std::vector<runtime::StagedMessages> messages;
  std::size_t longest = 0;
  std::set<std::pair<bool, UnitPieces::From>> ways;
  for (std::size_t unit = 0; unit < states.all().size(); ++unit) {
    for (const bool backward : {false, true}) {
      const auto from = pieces.from(unit, backward);
      if (from && (!backward || from->secondary)) ways.emplace(backward, *from);
    }
  }
  for (const auto& [backward, from] : ways) {
    // By class of the first unit of a message, which contains all shards that the step still needs.
    std::vector<std::size_t> bytes(classes.places.size(), 0);
    auto steps = stage.units_of_parts(Kind::forward);  // also in backward passes, for recomputation
    const auto back = stage.units_of_parts(Kind::backward_input);
    if (backward || !from.secondary) steps.insert(steps.end(), back.begin(), back.end());
    for (const auto& units : steps) {
      std::size_t behind = 0;
      for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        if (pieces.from(*unit, backward) != from) continue;
        behind += states.all()[*unit].elements / pieces.count(*unit, backward) *
                  runtime::size_of(states.precision().compute);
        std::size_t& of_class = bytes[classes.of_unit[*unit]];
        of_class = std::max(of_class, behind);
      }
    }
    const BufferSchedule schedule(classes);
    const std::size_t others = pieces.owners(from).members.size() - 1;
    for (std::size_t place = 0; place < schedule.places(); ++place) {
      const std::size_t of_place = bytes[schedule.class_of_place(place)];
      if (of_place == 0) continue;
      longest = std::max(longest, of_place);
      messages.push_back({Channel::piece, Direction::receive, static_cast<std::uint32_t>(place), of_place, others});
    }
  }
  messages.push_back({Channel::piece, Direction::send, std::nullopt,
                      std::min(longest, runtime::StagedTransport::usual_piece_bytes), answers_at_a_time});
  return messages;
}

PiecePulls::PiecePulls(const RankContext& context, const ModelShare& share, ParameterRecords* records,
                       HasPiece has_piece)
    : context_(&context),
      states_(share.states.get()),
      column_(share.column.get()),
      pieces_(share),
      records_(records),
      has_piece_(std::move(has_piece)) {}

PiecePulls::~PiecePulls() { *alive_ = false; }

void PiecePulls::start() {
  for (const int row : pieces_.other_rows()) listen(std::make_shared<Peer>(Peer{row, {}}));
}

std::vector<int> PiecePulls::ask(std::span<const Fill> fills, bool backward, std::uint64_t version,
                                 const std::function<void(int rank)>& arrived) {
  std::map<UnitPieces::From, std::vector<Fill>> ways;
  for (const Fill& fill : fills) {
    if (const auto from = pieces_.from(fill.unit, backward)) ways[*from].push_back(fill);
  }
  std::vector<int> asked;
  for (const auto& [from, of_way] : ways) {
    for (const int row : pieces_.owners(from).members) {
      if (row != column_->layout.rank()) ask_row(row, of_way, backward, version, arrived, asked);
    }
  }
  return asked;
}

void PiecePulls::ask_row(int row, std::span<const Fill> fills, bool backward, std::uint64_t version,
                         const std::function<void(int rank)>& arrived, std::vector<int>& asked) {
  const std::size_t element = runtime::size_of(states_->precision().compute);
  const int owner = column_->ranks[static_cast<std::size_t>(row)];
  for (std::size_t begin = 0; begin < fills.size(); begin += Request::max_units) {
    const auto some = fills.subspan(begin, std::min(Request::max_units, fills.size() - begin));
    auto request = std::make_shared<Request>();
    request->version = version;
    request->answer = static_cast<std::uint32_t>(some.front().place);
    request->backward = backward ? 1 : 0;
    request->count = static_cast<std::uint8_t>(some.size());
    std::vector<runtime::Bytes> ranges;
    for (std::size_t f = 0; f < some.size(); ++f) {
      request->units[f] = static_cast<std::uint16_t>(some[f].unit);
      const Range theirs = pieces_.range(some[f].unit, backward, row);
      ranges.emplace_back(some[f].data + theirs.begin * element, theirs.count * element);
    }
    asked.push_back(owner);
    context_->transport.receive(owner, Tag{Channel::piece, request->answer}, ranges,
                                [arrived, owner] { arrived(owner); });
    context_->transport.send(owner, Tag{Channel::pull, 0}, std::as_bytes(std::span(request.get(), 1)),
                             [request] {});
  }
}

void PiecePulls::listen(const std::shared_ptr<Peer>& peer) {
  const int rank = column_->ranks[static_cast<std::size_t>(peer->row)];
  context_->transport.receive(rank, Tag{Channel::pull, 0}, std::as_writable_bytes(std::span(&peer->request, 1)),
                              [this, peer, alive = alive_] {
                                if (!*alive) return;
                                const Request request = peer->request;
                                listen(peer);
                                handle(peer->row, request);
                              });
}

bool PiecePulls::can_answer(const Request& request) const {
  // The requesting rank may be a batch ahead, while this rank has refreshed only some units.
  return std::all_of(request.units, request.units + request.count,
                     [&](std::uint16_t unit) { return has_piece_(unit, request.backward != 0, request.version); });
}

void PiecePulls::answer(int row, const Request& request) {
  const int rank = column_->ranks[static_cast<std::size_t>(row)];
  const Tag tag{Channel::piece, request.answer};
  if (!states_->all()[request.units[0]].on_device()) {  // all units of a request are on the same tier
    std::vector<ParameterRecords::Piece> pieces;
    for (std::size_t u = 0; u < request.count; ++u)
      pieces.push_back({request.units[u], pieces_.secondary(request.units[u], request.backward != 0)});
    return records_->lend(std::move(pieces), request.version,
                          [this, rank, tag](std::span<const runtime::ConstBytes> ranges, runtime::Handler sent) {
                            context_->transport.send(rank, tag, ranges, std::move(sent));
                          });
  }
  std::vector<runtime::ConstBytes> ranges;
  for (std::size_t u = 0; u < request.count; ++u) {
    const std::size_t unit = request.units[u];
    const bool backward = request.backward != 0;
    const Range own = pieces_.range(unit, backward, column_->layout.rank());
    const UnitView& part = pieces_.source(unit, backward);
    ranges.emplace_back(part.at(own.begin), own.count * runtime::size_of(part.dtype));
  }
  context_->transport.send(rank, tag, ranges, [] {});
}

void PiecePulls::answer_waiting() {
  for (const auto& [row, request] : std::exchange(deferred_, {})) handle(row, request);
}

void PiecePulls::handle(int row, const Request& request) {
  if (can_answer(request)) return answer(row, request);
  deferred_.emplace_back(row, request);
}

}  // namespace ranvier::actors
